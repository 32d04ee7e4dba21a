"""Beam search: the likeliest continuations that a search of some width finds."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from posttrain.learning.models.context import context_length
from posttrain.learning.rollouts.engines.base import (
    FinishReason,
    Prompt,
    Sample,
    SamplingParams,
    check_prompts,
)
from posttrain.learning.rollouts.engines.stop import end_tokens, text_before, without_end

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.learning.models.load import Policy

Allowed = Mapping[tuple[int, ...], Sequence[int]]
"""Tokens that may follow what was drawn so far; what has no entry ends."""


class _Path(NamedTuple):
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    ended: bool

    @property
    def total(self) -> float:
        return sum(self.logprobs)


class BeamEngine:
    """Keeps the `width` likeliest beginnings of each answer, token by token.

    Samples of a prompt are what is left in the end, likeliest first, by the sum of their
    log-probabilities; nothing is drawn by chance. The whole text is read anew for each token, so
    that it is for answers of a few dozen tokens.
    """

    def __init__(
        self,
        policy: "Policy",
        *,
        width: int,
        allowed: Allowed | None = None,
        batch_size: int = 512,
        policy_version: int = 0,
    ) -> None:
        """Search with a policy.

        Args:
            policy: Whose likelihoods.
            width: Beginnings that are kept of each answer.
            allowed: What may be said at all; None for anything.
            batch_size: Rows that are read together.
            policy_version: What samples carry.

        """
        self.policy, self.width, self.allowed = policy, width, allowed
        self.batch_size, self.policy_version = batch_size, policy_version

    @property
    def context_length(self) -> int:
        """Positions that the model knows."""
        return context_length(self.policy.model.config)

    def update(self, policy_version: int) -> None:
        """Stamp later samples with this version; see `RolloutEngine.update`."""
        self.policy_version = policy_version

    @torch.no_grad()
    def sample(self, prompts: Sequence[Prompt], params: SamplingParams) -> list[Sample]:
        """Search for each prompt; see `RolloutEngine.sample`.

        Args:
            prompts: What to continue.
            params: Longest answer, and how many of the kept ones are wanted.

        Returns:
            Prompt by prompt, the likeliest first.

        Raises:
            ValueError: More samples are asked for than are kept.

        """
        if params.num_samples > self.width:
            raise ValueError(f"a beam of {self.width} has no {params.num_samples} samples")
        check_prompts(prompts, context_length=self.context_length)
        ends = set(end_tokens(self.policy.model, self.policy.tokenizer))
        beams = [[_Path((), (), False)] for _ in prompts]
        for step in range(params.max_tokens):
            going = [
                place
                for place, beam in enumerate(beams)
                if len(prompts[place].token_ids) + step < self.context_length
                and not all(path.ended for path in beam)
            ]
            if not going:
                break
            open_paths = [(at, path) for at in going for path in beams[at] if not path.ended]
            rows = [[*prompts[at].token_ids, *path.tokens] for at, path in open_paths]
            grown: dict[int, list[_Path]] = {at: [p for p in beams[at] if p.ended] for at in going}
            for (at, path), logprobs_V in zip(open_paths, self._next(rows), strict=True):
                grown[at] += self._followed(path, logprobs_V, ends)
            for at, paths in grown.items():
                beams[at] = sorted(paths, key=lambda each: -each.total)[: self.width]
        return [
            self._as_sample(prompt, index, path, ends, params)
            for prompt, beam in zip(prompts, beams, strict=True)
            for index, path in enumerate(self._enough(beam, params.num_samples))
        ]

    def _followed(self, path: _Path, logprobs_V: "Tensor", ends: set[int]) -> list[_Path]:
        """The likeliest ways to go on from a path; a path that may not go on ends."""
        if self.allowed is not None:
            may = list(self.allowed.get(path.tokens, ()))
            if not may:
                return [path._replace(ended=True)]
            values, tokens = logprobs_V[may].tolist(), may
        else:
            best = logprobs_V.topk(min(self.width, len(logprobs_V)))
            values, tokens = best.values.tolist(), best.indices.tolist()
        return [
            _Path((*path.tokens, token), (*path.logprobs, value), token in ends)
            for value, token in zip(values, tokens, strict=True)
        ]

    def _next(self, rows: Sequence[Sequence[int]]) -> "Tensor":
        """Log-probabilities of what comes behind each row, ``[R, V]``."""
        model, found = self.policy.model, []
        for begin in range(0, len(rows), self.batch_size):
            part = rows[begin : begin + self.batch_size]
            lengths = torch.tensor([len(row) for row in part], device=model.device)
            width = int(lengths.max())
            ids_BT = torch.tensor(
                [[*row, *[0] * (width - len(row))] for row in part], device=model.device
            )
            every_B = torch.arange(len(part), device=model.device)
            logits_BV = model(input_ids=ids_BT).logits[every_B, lengths - 1]
            found.append(logits_BV.float().log_softmax(-1).cpu())
        return torch.cat(found)

    def _enough(self, beam: Sequence[_Path], wanted: int) -> list[_Path]:
        """As many as were asked for; the last one again where less is allowed."""
        return [*beam, *[beam[-1]] * wanted][:wanted]

    def _as_sample(
        self, prompt: Prompt, index: int, path: _Path, ends: set[int], params: SamplingParams
    ) -> Sample:
        text_ids = without_end(path.tokens, sorted(ends))
        text = str(self.policy.tokenizer.decode(text_ids, skip_special_tokens=True))
        return Sample(
            prompt_id=prompt.id,
            index=index,
            token_ids=path.tokens,
            logprobs=path.logprobs,
            text=text_before(text, params.stop),
            finish_reason=FinishReason.STOP if path.ended else FinishReason.LENGTH,
            policy_version=self.policy_version,
        )
