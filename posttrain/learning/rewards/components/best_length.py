"""An answer is held against the shortest right one that its problem ever had."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class BestLengthComponent(Component):
    """`cos(pi/2 x length / best)`, -1 from twice the best on; 0 for a problem without a best yet.

    A right answer gets at least -0.7, so that with a verifier beside it it stays above every wrong
    one, and a wrong one gets at most 0: to be short is no merit there. The best of a problem is
    the least length of a right answer in the groups that were scored before, those of the same step
    too where it asks the problem again; it is in the checkpoint.
    """

    SOURCE = "HAPO, arXiv 2505.11225; the authors' utils.py, compute_len_reward"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"solved"})
    RANGE: ClassVar[Range] = (-1.0, 1.0)

    kind: Literal["best_length"] = "best_length"
    floor: float = Field(default=-0.7, ge=-1.0, le=0.0)
    """The least that a right answer gets."""

    def bounds(self, *, solved: bool) -> Range:
        """Return the ends of right answers, or of wrong ones."""
        return (self.floor, 1.0) if solved else (-1.0, 0.0)

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Compare with the best so far, then see to it; see `Component.score`."""
        best = known.state.get(group.problem.id)
        right = [
            length for length, solved in zip(group.lengths, group.solved, strict=True) if solved
        ]
        if right:
            known.state[group.problem.id] = min([*right, *([] if best is None else [best])])
        return [
            None if solved is None else 0.0 if best is None else self._paid(length / best, solved)
            for length, solved in zip(group.lengths, group.solved, strict=True)
        ]

    def _paid(self, ratio: float, solved: bool) -> float:
        curve = math.cos(math.pi / 2 * min(ratio, 2.0))
        return max(self.floor, curve) if solved else min(0.0, curve)
