"""The in-process engine: our own decode loop around the module that is being trained."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from posttrain.sampling.base import FinishReason, Prompt, Sample, SamplingParams, check_prompts
from posttrain.sampling.choose import draw, greedy
from posttrain.sampling.compaction import fill_the_gaps
from posttrain.sampling.decoder import Decoder, open_decoder
from posttrain.sampling.endings import end_tokens, text_before, without_end
from posttrain.sampling.llama import is_lean
from posttrain.sampling.memory import Memory
from posttrain.sampling.noise import Keys, row_keys, uniforms

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_WORTH_COMPACTING = 7 / 8
"""Finished prompts are dropped from the batch once at most this share of it is still open."""


class TorchSampler:
    """Samples from a transformers model in this process; see `base.Sampler` for the contract.

    Prompts of similar length are decoded together, at most `batch_size` rows at a time; each
    prompt is read once for all of its samples. Weights are read from the module at every call, so
    what an optimiser changed is seen at once; `update` only sets the version that samples carry.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        *,
        batch_size: int = 512,
        policy_version: int = 0,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.policy_version = policy_version
        self._memory = Memory()

    @property
    def context_length(self) -> int:
        """Positions that the model knows."""
        return int(self.model.config.get_text_config().max_position_embeddings)

    def update(self, policy_version: int) -> None:
        """Stamp later samples with this version."""
        self.policy_version = policy_version

    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """Draw `params.num_samples` continuations of every prompt."""
        check_prompts(prompts, context_length=self.context_length)
        ordered = sorted(range(len(prompts)), key=lambda index: len(prompts[index].token_ids))
        per_batch = max(1, self.batch_size // params.num_samples)
        samples: list[list[Sample]] = [[] for _ in prompts]
        ends = end_tokens(self.model, self.tokenizer)
        was_training = self.model.training
        self.model.eval()
        # Inference mode is a tenth faster, but a tensor that a model's own forward keeps for later
        # calls would be unfit for training.
        with torch.no_grad(), torch.inference_mode(mode=is_lean(self.model)):
            decoder = open_decoder(self.model, self._memory)
            for begin in range(0, len(ordered), per_batch):
                chosen = ordered[begin : begin + per_batch]
                rows = list(self._decode(decoder, [prompts[index] for index in chosen], params))
                texts = self._texts([without_end(row.token_ids, ends) for row in rows])
                drawn = zip(rows, texts, strict=True)
                for index in chosen:
                    samples[index] = self._samples(prompts[index], drawn, params)
        self.model.train(was_training)
        return [sample for group in samples for sample in group]

    def _decode(
        self, decoder: Decoder, prompts: Sequence[Prompt], params: SamplingParams
    ) -> Iterator["_Row"]:
        """Draw every row of one batch; rows in the order of the prompts."""
        group, device = params.num_samples, self.model.device
        context_length = self.context_length
        room_P = [context_length - len(prompt.token_ids) for prompt in prompts]
        max_tokens = min(params.max_tokens, max(room_P))
        record = _Record.blank(room_P, group=group, max_tokens=max_tokens, device=device)
        keys = row_keys(params.seed, [prompt.id for prompt in prompts], group)
        eos_E = torch.tensor(end_tokens(self.model, self.tokenizer), device=device)

        logits = decoder.prefill(*_pad_left(prompts, device), group=group, max_tokens=max_tokens)
        logits = logits.repeat_interleave(group, 0)
        rows_R = torch.arange(len(record.ends_R), device=device)
        for step in range(max_tokens):
            tokens_R, logprobs_R = _choose(logits, keys, rows_R, step, params)
            record.write(rows_R, step, tokens_R, logprobs_R)
            ended_R = (tokens_R[:, None] == eos_E).any(-1)
            if params.stop:
                ended_R |= self._meets_stop(record, rows_R, step, params.stop)
            open_R = record.close(rows_R, step, ended_R)
            open_P = open_R.view(-1, group).any(-1)
            num_open = int(open_P.sum())
            if num_open == 0:
                break
            if num_open <= _WORTH_COMPACTING * len(open_P):
                kept_P = fill_the_gaps(open_P, num_open)
                decoder.keep(kept_P)
                rows_R = rows_R.view(-1, group)[kept_P].flatten()
                tokens_R = tokens_R.view(-1, group)[kept_P].flatten()
            if step + 1 < max_tokens:
                logits = decoder.step(tokens_R)
        return record.rows()

    def _meets_stop(
        self, record: "_Record", rows_R: Tensor, step: int, stop: tuple[str, ...]
    ) -> Tensor:
        texts = self._texts(record.tokens_RT[rows_R, : step + 1].tolist())
        met = [any(string in text for string in stop) for text in texts]
        return torch.tensor(met, device=rows_R.device)

    def _samples(
        self, prompt: Prompt, drawn: Iterator[tuple["_Row", str]], params: SamplingParams
    ) -> list[Sample]:
        """The next rows of a batch with their texts, as this prompt's samples."""
        return [
            Sample(
                prompt_id=prompt.id,
                index=index,
                token_ids=tuple(row.token_ids),
                logprobs=tuple(row.logprobs),
                text=text_before(text, params.stop),
                finish_reason=FinishReason.STOP if row.stopped else FinishReason.LENGTH,
                policy_version=self.policy_version,
            )
            for index, (row, text) in enumerate(islice(drawn, params.num_samples))
        ]

    def _texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return list(self.tokenizer.batch_decode(rows, skip_special_tokens=True))


@dataclass(frozen=True)
class _Row:
    """One finished row."""

    token_ids: list[int]
    logprobs: list[float]
    stopped: bool


@dataclass(frozen=True)
class _Record:
    """What a batch has drawn so far, by original row."""

    tokens_RT: Tensor
    logprobs_RT: Tensor
    ends_R: Tensor
    """Number of tokens of each row, once it ended; until then the most that it may have."""
    stopped_R: Tensor

    @classmethod
    def blank(
        cls, room_P: Sequence[int], *, group: int, max_tokens: int, device: torch.device
    ) -> "_Record":
        ends_R = torch.tensor(room_P, device=device).repeat_interleave(group)
        shape = (len(ends_R), max_tokens)
        return cls(
            torch.zeros(shape, dtype=torch.long, device=device),
            torch.zeros(shape, device=device),
            ends_R.clamp_max(max_tokens),
            torch.zeros(len(ends_R), dtype=torch.bool, device=device),
        )

    def write(self, rows_R: Tensor, step: int, tokens_R: Tensor, logprobs_R: Tensor) -> None:
        """Note what was drawn; what a row draws after its end is never read."""
        self.tokens_RT[rows_R, step] = tokens_R
        self.logprobs_RT[rows_R, step] = logprobs_R

    def close(self, rows_R: Tensor, step: int, ended_R: Tensor) -> Tensor:
        """Close the rows that ended with this token; which of them are open still."""
        open_R = self.ends_R[rows_R] > step
        closing_R = rows_R[open_R & ended_R]
        self.ends_R[closing_R] = step + 1
        self.stopped_R[closing_R] = True
        return self.ends_R[rows_R] > step + 1

    def rows(self) -> Iterator[_Row]:
        """Every row, cut at its end."""
        columns = (self.tokens_RT, self.logprobs_RT, self.ends_R, self.stopped_R)
        for tokens, logprobs, end, stopped in zip(*(c.tolist() for c in columns), strict=True):
            yield _Row(tokens[:end], logprobs[:end], stopped)


def _choose(
    logits_RV: Tensor, keys: Keys, rows_R: Tensor, step: int, params: SamplingParams
) -> tuple[Tensor, Tensor]:
    if params.greedy:
        return greedy(logits_RV)
    uniforms_R = uniforms(keys[rows_R.cpu().numpy()], step).to(logits_RV.device)
    return draw(
        logits_RV,
        uniforms_R,
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
