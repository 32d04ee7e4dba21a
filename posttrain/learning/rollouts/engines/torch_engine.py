"""The in-process engine: our own decode loop around the module that is being trained."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from posttrain.learning.models.context import context_length
from posttrain.learning.rollouts.engines.base import (
    FinishReason,
    Prompt,
    Sample,
    SamplingParams,
    check_prompts,
)
from posttrain.learning.rollouts.engines.compaction import fill_the_gaps
from posttrain.learning.rollouts.engines.decode import choose_tokens, greedy
from posttrain.learning.rollouts.engines.llama import LlamaDecoder, can_decode
from posttrain.learning.rollouts.engines.record import FinishedRow, Record, RowMask, Rows
from posttrain.learning.rollouts.engines.rng import row_keys, uniforms
from posttrain.learning.rollouts.engines.stop import end_tokens, text_before, without_end

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_WORTH_COMPACTING = 7 / 8
"""Finished prompts are dropped from the batch once at most this share of it is still open."""

_WORTH_REFILLING = 1 / 8
"""Waiting prompts are read once this share of the places is free; alone, a prompt costs a step."""


class TorchRolloutEngine:
    """Samples from a transformers model in this process; see `base.RolloutEngine` for the contract.

    At most `batch_size` rows are decoded together, or the samples of one prompt where these are
    more; each prompt is read once for all of its samples. A small Llama is decoded by `llama.py`,
    in batches of prompts of similar length; any other model has its own forward called, where the
    places of rows that end are given to prompts that wait. Weights are read from the module at
    every call, so what an optimizer changed is seen at once; `update` only sets the version that
    samples carry.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        batch_size: int = 512,
        policy_version: int = 0,
        compiled: bool = False,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.policy_version = policy_version
        self._forward = torch.compile(model, dynamic=True) if compiled else model

    @property
    def context_length(self) -> int:
        """Positions that the model knows."""
        return context_length(self.model.config)

    def update(self, policy_version: int) -> None:
        """Stamp later samples with this version."""
        self.policy_version = policy_version

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """Draw with the policy's own module; see `RolloutEngine.sample`."""
        check_prompts(prompts, context_length=self.context_length)
        if can_decode(self.model):
            # A tenth faster than `no_grad`, but a tensor that a model's own forward keeps for later
            # calls would be unfit for training.
            with torch.inference_mode():
                samples = dict(self._in_batches(prompts, params))
        else:
            was_training = self.model.training
            self.model.eval()
            with torch.no_grad():
                samples = dict(self._flow(prompts, params))
            self.model.train(was_training)
        return [sample for prompt in prompts for sample in samples[prompt.id]]

    def _in_batches(
        self, prompts: Sequence[Prompt], params: SamplingParams
    ) -> Iterator[tuple[str, list[Sample]]]:
        """The samples of every prompt, by its id: batch by batch, short prompts first."""
        ordered = sorted(prompts, key=lambda prompt: len(prompt.token_ids))
        decoder = LlamaDecoder(self.model)
        longest = max((len(prompt.token_ids) for prompt in prompts), default=0) + params.max_tokens
        num_rows = min(self.batch_size, decoder.most_rows(min(longest, self.context_length)))
        per_batch = max(1, num_rows // params.num_samples)
        for begin in range(0, len(ordered), per_batch):
            batch = ordered[begin : begin + per_batch]
            yield from self._samples(batch, self._decode(decoder, batch, params), params)

    def _flow(
        self, prompts: Sequence[Prompt], params: SamplingParams
    ) -> Iterator[tuple[str, list[Sample]]]:
        """The samples of every prompt, by its id: long prompts first, others as places get free."""
        from posttrain.learning.rollouts.engines.slots import SlotDecoder

        if not prompts:
            return
        waiting = sorted(prompts, key=lambda prompt: -len(prompt.token_ids))
        group = params.num_samples
        places = min(max(1, self.batch_size // group), len(waiting))
        record = self._blank(waiting, params)
        keys = row_keys(params.seed, [prompt.id for prompt in waiting], group)
        num_columns = len(waiting[0].token_ids) + record.tokens_RT.shape[1]
        if len(waiting) > places:
            num_columns += num_columns // 4
        decoder = SlotDecoder(
            self.model, self._forward, num_rows=places * group, num_columns=num_columns
        )
        rows_R = steps_R = np.zeros(0, dtype=np.int64)
        logits, begin = torch.zeros(0, device=self.model.device), 0
        while begin < len(waiting) or len(rows_R):
            free = places - -(-len(rows_R) // group)
            if begin < len(waiting) and free >= _WORTH_REFILLING * places:
                admitted = waiting[begin : begin + free]
                read = decoder.admit(*_pad_left(admitted, self.model.device), group=group)
                logits = torch.cat([logits, read]) if len(rows_R) else read
                new_R = np.arange(len(read)) + begin * group
                rows_R, steps_R = np.append(rows_R, new_R), np.append(steps_R, new_R * 0)
                begin += len(admitted)
            numbers_R = uniforms(keys[rows_R], steps_R.astype(np.uint64))
            tokens_R, logprobs_R = _choose(logits, numbers_R, params)
            open_R = self._note(record, rows_R, steps_R, (tokens_R, logprobs_R), params)
            num_open = int(open_R.sum())
            if num_open < len(rows_R):
                kept_R = fill_the_gaps(open_R, num_open)
                rows_R, steps_R = rows_R[kept_R], steps_R[kept_R]
                chosen_R = torch.from_numpy(kept_R).to(tokens_R.device)
                decoder.keep(chosen_R)
                tokens_R = tokens_R[chosen_R]
            steps_R = steps_R + 1
            if num_open:
                logits = decoder.step(tokens_R)
        yield from self._samples(waiting, record.rows(), params)

    def _blank(self, prompts: Sequence[Prompt], params: SamplingParams) -> Record:
        room_P = [self.context_length - len(prompt.token_ids) for prompt in prompts]
        return Record.blank(
            room_P,
            group=params.num_samples,
            max_tokens=min(params.max_tokens, max(room_P)),
            end_tokens=end_tokens(self.model, self.tokenizer),
        )

    def _decode(
        self, decoder: LlamaDecoder, prompts: Sequence[Prompt], params: SamplingParams
    ) -> Iterator[FinishedRow]:
        """Draw every row of one batch; rows in the order of the prompts."""
        group, device = params.num_samples, self.model.device
        record = self._blank(prompts, params)
        max_tokens = record.tokens_RT.shape[1]
        keys = row_keys(params.seed, [prompt.id for prompt in prompts], group)
        steps_T1 = np.arange(max_tokens, dtype=np.uint64)[:, None]
        numbers_TR = uniforms(keys, steps_T1).numpy()

        logits = decoder.prefill(*_pad_left(prompts, device), group=group, max_tokens=max_tokens)
        logits = logits.repeat_interleave(group, 0)
        rows_R = np.arange(len(record.ends_R))
        for step in range(max_tokens):
            numbers_R = torch.from_numpy(numbers_TR[step][rows_R])
            tokens_R, logprobs_R = _choose(logits, numbers_R, params)
            open_R = self._note(record, rows_R, step, (tokens_R, logprobs_R), params)
            open_P: RowMask = open_R.reshape(-1, group).max(-1)
            num_open = int(open_P.sum())
            if num_open == 0:
                break
            if num_open <= _WORTH_COMPACTING * len(open_P):
                kept_P = fill_the_gaps(open_P, num_open)
                rows_R = rows_R.reshape(-1, group)[kept_P].flatten()
                chosen_P = torch.from_numpy(kept_P).to(device)
                decoder.keep(chosen_P)
                tokens_R = tokens_R.view(-1, group)[chosen_P].flatten()
            if step + 1 < max_tokens:
                logits = decoder.step(tokens_R)
        return record.rows()

    def _note(
        self,
        record: Record,
        rows_R: Rows,
        step: int | Rows,
        drawn: tuple[Tensor, Tensor],
        params: SamplingParams,
    ) -> RowMask:
        """Note tokens and log-probabilities; which of the rows are open still."""
        ended_R = record.write(rows_R, step, *drawn)
        if params.stop:
            texts = self._texts(record.drawn(rows_R, step))
            ended_R |= [any(string in text for string in params.stop) for text in texts]
        return record.close(rows_R, step, ended_R)

    def _samples(
        self, prompts: Sequence[Prompt], rows: Iterator[FinishedRow], params: SamplingParams
    ) -> Iterator[tuple[str, list[Sample]]]:
        """The rows of these prompts with their texts, prompt by prompt."""
        ends, drawn = end_tokens(self.model, self.tokenizer), list(rows)
        texts = self._texts([without_end(row.token_ids, ends) for row in drawn])
        each = zip(drawn, texts, strict=True)
        for prompt in prompts:
            yield (
                prompt.id,
                [
                    Sample(
                        prompt_id=prompt.id,
                        index=index,
                        token_ids=tuple(row.token_ids),
                        logprobs=tuple(row.logprobs),
                        text=text_before(text, params.stop),
                        finish_reason=FinishReason.STOP if row.stopped else FinishReason.LENGTH,
                        policy_version=self.policy_version,
                    )
                    for index, (row, text) in enumerate(islice(each, params.num_samples))
                ],
            )

    def _texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return list(self.tokenizer.batch_decode(rows, skip_special_tokens=True))


def _choose(logits_RV: Tensor, uniforms_R: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    if params.greedy:
        return greedy(logits_RV)
    return choose_tokens(
        logits_RV,
        uniforms_R.to(logits_RV.device),
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
    )


def _pad_left(prompts: Sequence[Prompt], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids `[P, S]` padded on the left with 0, and the padding of each `[P]`."""
    longest = max(len(prompt.token_ids) for prompt in prompts)
    padding = [longest - len(prompt.token_ids) for prompt in prompts]
    rows = [[0] * pad + list(p.token_ids) for pad, p in zip(padding, prompts, strict=True)]
    return torch.tensor(rows, device=device), torch.tensor(padding, device=device)
