"""Of a group: the shortest of its successes, and the longest of its failures."""

from collections.abc import Mapping, Sequence
from math import ceil
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.learning.rl.selections.base import Selection

if TYPE_CHECKING:
    from posttrain.learning.rl.rollout import Rollout


class BriefSuccesses(Selection):
    """Learn from the shortest `share` of the right rollouts and the longest of the wrong ones.

    Of each side at least one is kept, and of equal lengths what was drawn first. What could not be
    judged is left out. The rest may be learned from later: `updates.replay: left_over`.
    """

    SOURCE: ClassVar[str] = "RoRecomp, arXiv 2509.25958, priority batches"
    METRICS: ClassVar[Mapping[str, str]] = {
        "right_kept": "mean tokens of the right rollouts that are learned from",
        "right_left": "mean tokens of the right rollouts that are left out",
    }

    kind: Literal["brief_successes"] = "brief_successes"
    share: float = Field(default=0.5, gt=0.0, le=1.0)
    """Of the right rollouts and of the wrong ones, rounded up."""

    def keep(self, rollouts: "Sequence[Rollout]", draw: Random) -> Sequence[int]:  # noqa: ARG002
        """Rank both sides by length; see `Selection.keep`."""
        judged = [place for place, each in enumerate(rollouts) if each.judged]
        right = [place for place in judged if rollouts[place].solved]
        wrong = [place for place in judged if not rollouts[place].solved]
        right.sort(key=lambda place: rollouts[place].num_drawn)
        wrong.sort(key=lambda place: -rollouts[place].num_drawn)
        return sorted(
            place for side in (right, wrong) for place in side[: ceil(self.share * len(side))]
        )

    def measure(self, groups: "Sequence[Sequence[Rollout]]") -> Mapping[str, float]:
        """Average the lengths of successes; see `Selection.measure`."""
        right = [each for group in groups for each in group if each.judged and each.solved]
        lengths = {
            name: [each.num_drawn for each in right if each.trained == kept]
            for name, kept in (("right_kept", True), ("right_left", False))
        }
        return {name: fmean(each) for name, each in lengths.items() if each}
