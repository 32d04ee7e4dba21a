"""The sampler of policies that predict masks."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from posttrain.learning.models.mask_predictor import as_mask_predictor
from posttrain.learning.models.next_token import head_logits
from posttrain.learning.rollouts.engines.base import (
    FinishReason,
    Prompt,
    Sample,
    SamplingParams,
    check_prompts,
)
from posttrain.learning.rollouts.engines.decode import choose_tokens, greedy
from posttrain.learning.rollouts.engines.rng import RowKeys, row_keys, uniforms
from posttrain.learning.rollouts.engines.stop import end_tokens, text_before, without_end

if TYPE_CHECKING:
    from posttrain.learning.models.load import Policy


class MaskedDiffusionSampler:
    """Unmasks answers; see `base.RolloutEngine` for the contract.

    Shape letters beyond the usual: `_L` tokens of an answer.

    Args:
        policy: Is made to read without an order, in place.
        at_once: Tokens that a pass unmasks.
        block: Tokens of a block; None for all of an answer.
        by_chance: True where any tokens are unmasked, False for those it is surest of.
        batch_size: Answers that are unmasked together.
        policy_version: What samples say of the policy.

    """

    def __init__(
        self,
        policy: "Policy",
        *,
        at_once: int,
        block: int | None,
        by_chance: bool,
        batch_size: int = 512,
        policy_version: int = 0,
    ) -> None:
        self.policy = policy
        self.at_once, self.block, self.by_chance = at_once, block, by_chance
        self.batch_size, self.policy_version = batch_size, policy_version
        self.predictor = as_mask_predictor(policy.model)
        self.mask = int(policy.model.config.mask_token_id)
        self.canvas = int(policy.model.config.answer_canvas)
        tokenizer = policy.tokenizer
        # No answer has these: a drawn mask would never be unmasked, and padding is not read.
        silent = (self.mask, tokenizer.pad_token_id, tokenizer.bos_token_id)
        ends = end_tokens(policy.model, tokenizer)
        self._silent = sorted({each for each in silent if each is not None} - {*ends})

    @property
    def context_length(self) -> int:
        """Tokens that a prompt and what is drawn may have, so that a whole answer finds room."""
        return int(self.policy.model.config.max_position_embeddings)

    def update(self, policy_version: int) -> None:
        """Stamp later samples with this version; see `RolloutEngine.update`."""
        self.policy_version = policy_version

    @torch.no_grad()
    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """Unmask batch by batch; see `RolloutEngine.sample`."""
        check_prompts(prompts, context_length=self.context_length - self.canvas + 1)
        group = params.num_samples
        keys = row_keys(params.seed, [prompt.id for prompt in prompts], group)
        asked = [prompt for prompt in prompts for _ in range(group)]
        was_training = self.policy.model.training
        self.policy.model.eval()
        found: list[Sample] = []
        for begin in range(0, len(asked), self.batch_size):
            part = slice(begin, begin + self.batch_size)
            drawn = self._unmasked(asked[part], keys[part], params)
            found += [
                self._as_sample(prompt, (begin + row) % group, *each, params)
                for row, (prompt, each) in enumerate(zip(asked[part], drawn, strict=True))
            ]
        self.policy.model.train(was_training)
        return found

    def _unmasked(
        self, prompts: Sequence[Prompt], keys_B: RowKeys, params: SamplingParams
    ) -> Iterator[tuple[list[int], list[float]]]:
        """Tokens of each answer, and the log-probability of each when it was unmasked."""
        device = self.policy.model.device
        lengths = [len(prompt.token_ids) + self.canvas for prompt in prompts]
        rows = [[*each.token_ids, *[self.mask] * self.canvas] for each in prompts]
        ids_BT = torch.tensor([[*row, *[0] * (max(lengths) - len(row))] for row in rows])
        ids_BT, length_B = ids_BT.to(device), torch.tensor(lengths, device=device)
        places_BL = length_B[:, None] - self.canvas + torch.arange(self.canvas, device=device)
        logprobs_BL = torch.zeros(places_BL.shape, device=device)
        size = self.block or self.canvas
        passes = 0
        for begin in range(0, self.canvas, size):
            block_L = (torch.arange(self.canvas, device=device) // size) == begin // size
            for done in range(0, min(size, self.canvas - begin), self.at_once):
                open_BL = (ids_BT.gather(1, places_BL) == self.mask) & block_L
                found = self._proposed(ids_BT, length_B, places_BL)
                said_BL, sure_BL, now_BL = self._said(found, keys_B, passes, params)
                count = min(self.at_once, min(size, self.canvas - begin) - done)
                sure_BL = sure_BL.masked_fill(~open_BL, -torch.inf)
                best_BK = sure_BL.argsort(dim=-1, descending=True, stable=True)[:, :count]
                chosen_BL = torch.zeros_like(open_BL).scatter_(1, best_BK, value=True)
                kept_BL = torch.where(chosen_BL, said_BL, ids_BT.gather(1, places_BL))
                ids_BT = ids_BT.scatter(1, places_BL, kept_BL)
                logprobs_BL = torch.where(chosen_BL, now_BL, logprobs_BL)
                passes += 1
        answers = ids_BT.gather(1, places_BL).tolist()
        return zip(answers, logprobs_BL.tolist(), strict=True)

    def _proposed(self, ids_BT: Tensor, length_B: Tensor, places_BL: Tensor) -> Tensor:
        """Logits of all tokens at every place of the answers, ``[B, L, V]``."""
        states_BTC = self.predictor.states(ids_BT, length_B)
        index_BLC = places_BL[..., None].expand(-1, -1, states_BTC.shape[-1])
        logits_BLV = head_logits(self.policy.model, states_BTC.gather(1, index_BLC))
        logits_BLV[..., self._silent] = -torch.inf
        return logits_BLV

    def _said(
        self, logits_BLV: Tensor, keys_B: RowKeys, passes: int, params: SamplingParams
    ) -> tuple[Tensor, Tensor, Tensor]:
        """A token for every place, how sure it is, and its log-probability; ``[B, L]`` each."""
        shape, flat_NV = logits_BLV.shape[:2], logits_BLV.flatten(0, 1)
        first = 2 * passes * self.canvas
        steps_L1 = np.arange(first, first + 2 * self.canvas, dtype=np.uint64)[:, None]
        numbers_2LB = uniforms(keys_B, steps_L1).to(flat_NV.device)
        numbers_LB, order_LB = torch.split(numbers_2LB, self.canvas)
        if params.greedy:
            tokens_N, logprobs_N = greedy(flat_NV)
        else:
            tokens_N, logprobs_N = choose_tokens(
                flat_NV,
                numbers_LB.T.flatten(),
                temperature=params.temperature,
                top_k=params.top_k,
                top_p=params.top_p,
            )
        if self.by_chance:
            sure_BL = order_LB.T
        else:
            sure_BL = flat_NV.log_softmax(-1).gather(1, tokens_N[:, None]).view(shape)
        return tokens_N.view(shape), sure_BL, logprobs_N.view(shape)

    def _as_sample(
        self,
        prompt: Prompt,
        index: int,
        tokens: Sequence[int],
        logprobs: Sequence[float],
        params: SamplingParams,
    ) -> Sample:
        ends = end_tokens(self.policy.model, self.policy.tokenizer)
        room = min(self.canvas, params.max_tokens)
        last = next((at for at, token in enumerate(tokens[:room]) if token in ends), None)
        tokens = tokens[: room if last is None else last + 1]
        text_ids = without_end(tokens, ends)
        text = str(self.policy.tokenizer.decode(text_ids, skip_special_tokens=True))
        return Sample(
            prompt_id=prompt.id,
            index=index,
            token_ids=tuple(tokens),
            logprobs=tuple(logprobs[: len(tokens)]),
            text=text_before(text, params.stop),
            finish_reason=FinishReason.LENGTH if last is None else FinishReason.STOP,
            policy_version=self.policy_version,
        )
