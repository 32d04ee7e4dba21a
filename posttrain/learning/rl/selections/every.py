"""Everything that was drawn."""

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rl.selections.base import Selection

if TYPE_CHECKING:
    from posttrain.learning.rl.rollout import Rollout


class Every(Selection):
    """Learn from all rollouts of a group.

    Source: GRPO, arXiv 2402.03300, algorithm 1: the whole group is learned from.
    """

    kind: Literal["every"] = "every"

    def keep(self, rollouts: "Sequence[Rollout]", draw: Random) -> Sequence[int]:  # noqa: ARG002
        """Choose all; see `Selection.keep`."""
        return range(len(rollouts))
