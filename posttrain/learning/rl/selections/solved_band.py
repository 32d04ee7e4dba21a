"""Groups of intermediate difficulty alone."""

from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.rl.selections.base import Selection

if TYPE_CHECKING:
    from posttrain.learning.rl.rollout import Rollout


class SolvedBand(Selection):
    """Learn from a group if the share of its answers that are right lies within a band.

    With `train_on: signal` and several rounds, a group outside of it is made up for by another
    problem. What could not be judged does not count.
    """

    SOURCE: ClassVar[str] = "Bae et al., arXiv 2504.03380, section 3 (balanced online filtering)"
    METRICS: ClassVar[Mapping[str, str]] = {
        "solve_rate": "mean share of right answers of the groups that are learned from"
    }

    kind: Literal["solved_band"] = "solved_band"
    least: float = Field(default=0.25, ge=0.0, le=1.0)
    """Lowest share of right answers that is learned from."""
    most: float = Field(default=0.75, ge=0.0, le=1.0)
    """Highest share that is."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"least {self.least} is more than most {self.most}; exchange them")
        return self

    def keep(self, rollouts: "Sequence[Rollout]", draw: Random) -> Sequence[int]:  # noqa: ARG002
        """Choose all or none; see `Selection.keep`."""
        judged = [bool(each.solved) for each in rollouts if each.solved is not None]
        inside = bool(judged) and self.least <= fmean(judged) <= self.most
        return range(len(rollouts)) if inside else ()

    def measure(self, groups: "Sequence[Sequence[Rollout]]") -> Mapping[str, float]:
        """Average the shares; see `Selection.measure`."""
        shares = [
            fmean(bool(each.solved) for each in group if each.solved is not None)
            for group in groups
            if any(each.trained and each.solved is not None for each in group)
        ]
        return {"solve_rate": fmean(shares)} if shares else {}
