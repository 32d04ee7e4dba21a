"""Length costs only in the groups that solve their problem best."""

import math
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class SolvedLengthComponent(Component):
    """`-weight x sigmoid((length - mean) / deviation)` of right answers, in the best groups alone.

    Groups of a round are ranked by the share of their answers that are right; the first `share` of
    them pay for length, the others nothing, so that what is not yet solved is not made brief.
    Mean and deviation are of the lengths of a group's right answers.
    """

    SOURCE = "GRPO-lambda, arXiv 2505.18086; the penalty as in arXiv 2502.04463"
    SCOPE: ClassVar[Literal["group"]] = "group"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"solved"})
    RANGE: ClassVar[Range] = (-1.0, 0.0)

    kind: Literal["solved_length"] = "solved_length"
    share: float = Field(default=0.2, gt=0.0, le=1.0)
    """Part of the groups of a round, best solved first, whose right answers pay for length."""
    weight: float = Field(default=0.2, gt=0.0, lt=1.0)
    """The most that a right answer pays."""

    def bounds(self, *, solved: bool) -> Range:
        """Return the ends; a wrong answer pays nothing."""
        return (-self.weight, 0.0) if solved else (0.0, 0.0)

    def score_all(
        self,
        groups: Sequence[Answers],
        known: Inquiry,  # noqa: ARG002 - lengths and who is right
    ) -> Sequence[Sequence[float | None]]:
        """Rank the groups, then compare the lengths of each; see `Component.score_all`."""
        shares = [_share_right(group) for group in groups]
        ranked = sorted(range(len(groups)), key=lambda place: (-shares[place], place))
        chosen = set(ranked[: math.ceil(self.share * len(groups))])
        return [
            self._paid(group) if place in chosen else [_nothing(each) for each in group.solved]
            for place, group in enumerate(groups)
        ]

    def _paid(self, group: Answers) -> list[float | None]:
        right = [length for length, each in zip(group.lengths, group.solved, strict=True) if each]
        if not right:
            return [_nothing(each) for each in group.solved]
        mean, deviation = fmean(right), pstdev(right)
        return [
            -self.weight * _sigmoid((length - mean) / deviation if deviation else 0.0)
            if each
            else _nothing(each)
            for length, each in zip(group.lengths, group.solved, strict=True)
        ]


def _share_right(group: Answers) -> float:
    judged = [each for each in group.solved if each is not None]
    return sum(judged) / len(judged) if judged else 0.0


def _nothing(solved: bool | None) -> float | None:
    return None if solved is None else 0.0


def _sigmoid(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value))
