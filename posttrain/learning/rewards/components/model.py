"""Reward models score the answers."""

import math
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class ModelComponent(Component):
    """The score of a reward model, or of several: mean, least, or mean less k deviations.

    A model comes through the stage's port `reward_models`, under the name that `models` gives, and
    reads prompt and text by its own tokenizer. What it says of an answer that was cut off or is
    empty counts like any other.
    """

    SOURCE = "ensembles: arXiv 2310.02743 (mean, worst case; there less the variance)"
    RANGE: ClassVar[Range] = (-math.inf, math.inf)

    kind: Literal["model"] = "model"
    models: list[str] = Field(min_length=1)
    """Names under `inputs.reward_models`; several make an ensemble."""
    reduce: Literal["mean", "min", "mean_less_deviation"] = "mean"
    """How the scores of several become one."""
    deviations: float = Field(default=1.0, ge=0.0)
    """How many population deviations `mean_less_deviation` takes off."""
    squash: Literal["none", "sigmoid"] = "none"
    """`sigmoid` brings each model's score between 0 and 1, so that its weight is bounded."""

    def ports(self) -> Sequence[str]:
        """Return the ports of the models; see `Component.ports`."""
        return tuple(f"reward_models.{name}" for name in self.models)

    def bounds(self, *, solved: bool) -> Range:  # noqa: ARG002 - a model does not know
        """Return the ends: with the deviation taken off, half a one below a sigmoid's least."""
        if self.squash == "none":
            return self.RANGE
        lowest = -0.5 * self.deviations if self.reduce == "mean_less_deviation" else 0.0
        return lowest, 1.0

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Ask about one group; see `Component.score`."""
        return self.score_all([group], known)[0]

    def score_all(
        self, groups: Sequence[Answers], known: Inquiry
    ) -> Sequence[Sequence[float | None]]:
        """Ask each model about all answers at once; see `Component.score_all`."""
        from posttrain.data.contexts import in_context

        problems = [group.problem for group in groups for _ in group.texts]
        texts = [text for group in groups for text in group.texts]
        prompts = in_context(
            [each.prompt for each in problems], [each.context for each in problems]
        )
        columns = [known.models.reward_model(name).score(prompts, texts) for name in self.models]
        scores = iter(self._reduced(row) for row in zip(*columns, strict=True))
        return [[next(scores) for _ in group.texts] for group in groups]

    def _reduced(self, scores: Sequence[float]) -> float:
        if self.squash == "sigmoid":
            scores = [_sigmoid(each) for each in scores]
        if self.reduce == "min":
            return min(scores)
        if self.reduce == "mean":
            return fmean(scores)
        return fmean(scores) - self.deviations * pstdev(scores)


def _sigmoid(value: float) -> float:
    # In the form that does not overflow.
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))
