"""Samples from a geometric mixture of two policies, token by token."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

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
from posttrain.learning.rollouts.engines.decode import choose_tokens, greedy
from posttrain.learning.rollouts.engines.rng import RowKeys, row_keys, uniforms
from posttrain.learning.rollouts.engines.stop import end_tokens, text_before, without_end

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from posttrain.learning.models.load import Policy


class MixtureRolloutEngine:
    """Draws from ``p^(1 - share) q^share``, normalized at each token; see `base.RolloutEngine`.

    Both models read the whole text anew for each token, so that it is for answers of a few dozen
    tokens. Source: the approximation of Nash-MD by single tokens, arXiv 2312.00886, section 7.
    """

    def __init__(
        self,
        policy: "Policy",
        other: "PreTrainedModel",
        *,
        share: float,
        batch_size: int = 512,
        policy_version: int = 0,
    ) -> None:
        if not 0 <= share <= 1:
            raise ValueError(f"share must lie in [0, 1], got {share}")
        self.policy, self.other, self.share = policy, other, share
        self.batch_size, self.policy_version = batch_size, policy_version

    @property
    def context_length(self) -> int:
        """Positions that both models know."""
        models = (self.policy.model, self.other)
        return min(context_length(each.config) for each in models)

    def update(self, policy_version: int) -> None:
        """Stamp later samples with this version; see `RolloutEngine.update`."""
        self.policy_version = policy_version

    @torch.no_grad()
    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """Draw batch by batch; see `RolloutEngine.sample`."""
        check_prompts(prompts, context_length=self.context_length)
        keys = row_keys(params.seed, [prompt.id for prompt in prompts], params.num_samples)
        asked = [prompt for prompt in prompts for _ in range(params.num_samples)]
        found: list[Sample] = []
        for begin in range(0, len(asked), self.batch_size):
            part = asked[begin : begin + self.batch_size]
            drawn = self._drawn(part, keys[begin : begin + self.batch_size], params)
            places = range(begin, begin + len(part))
            found += [
                self._as_sample(prompt, place % params.num_samples, *row, params)
                for place, prompt, row in zip(places, part, drawn, strict=True)
            ]
        return found

    def _drawn(
        self, prompts: Sequence[Prompt], keys: RowKeys, params: SamplingParams
    ) -> list[tuple[list[int], list[float]]]:
        """Tokens of each row and their log-probabilities, until it ends or is full."""
        ends = set(end_tokens(self.policy.model, self.policy.tokenizer))
        rows = [(list(prompt.token_ids), len(prompt.token_ids)) for prompt in prompts]
        drawn: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
        going = list(range(len(prompts)))
        for step in range(params.max_tokens):
            logits_BV = self._logits([rows[place][0] for place in going])
            numbers_B = uniforms(keys[going], step).to(logits_BV.device)
            chosen = _choose(logits_BV, numbers_B, params)
            for place, token, logprob in zip(
                going, *(each.tolist() for each in chosen), strict=True
            ):
                rows[place][0].append(token)
                drawn[place][0].append(token)
                drawn[place][1].append(logprob)
            going = [
                place
                for place in going
                if drawn[place][0][-1] not in ends and len(rows[place][0]) < self.context_length
            ]
            if not going:
                break
        return drawn

    def _logits(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """The mixture's logits behind each row; what fills up on the right is not looked at."""
        lengths = torch.tensor([len(row) for row in rows])
        width = int(lengths.max())
        device = self.policy.model.device
        ids_BT = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
        last_B = lengths.to(device) - 1
        every_B = torch.arange(len(rows), device=device)
        own_BV, other_BV = (
            model(input_ids=ids_BT).logits[every_B, last_B].float().log_softmax(-1)
            for model in (self.policy.model, self.other)
        )
        mixed_BV: Tensor = own_BV.lerp(other_BV, self.share)
        return mixed_BV

    def _as_sample(
        self,
        prompt: Prompt,
        index: int,
        tokens: Sequence[int],
        logprobs: Sequence[float],
        params: SamplingParams,
    ) -> Sample:
        text_ids = without_end(tokens, end_tokens(self.policy.model, self.policy.tokenizer))
        stopped = len(text_ids) < len(tokens)
        text = str(self.policy.tokenizer.decode(text_ids, skip_special_tokens=True))
        return Sample(
            prompt_id=prompt.id,
            index=index,
            token_ids=tuple(tokens),
            logprobs=tuple(logprobs),
            text=text_before(text, params.stop),
            finish_reason=FinishReason.STOP if stopped else FinishReason.LENGTH,
            policy_version=self.policy_version,
        )


def _choose(logits_BV: Tensor, numbers_B: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    if params.greedy:
        return greedy(logits_BV)
    return choose_tokens(
        logits_BV,
        numbers_B,
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
    )
