"""A start near the end of the solution that moves back as the policy comes to solve the rest."""

from collections.abc import Sequence
from random import Random
from typing import Literal

from pydantic import Field

from posttrain.learning.rl.hints.base import HintLaw, TriedShare


class Retreating(HintLaw):
    """Begin a problem with most of its solution given, and with less each time it is solved.

    A curriculum from the end backward: what is left to do is a step longer only where the shorter
    rest is solved often enough.

    `h <- max(0, h - by)` after a group of which at least `solved` is right, from `h = first`.
    """

    SOURCE = "reverse curricula, arXiv 1707.05300; warm starts of QWeb, arXiv 1812.09195, section 4"
    LOOKS = True

    kind: Literal["retreating"] = "retreating"
    first: float = Field(default=0.75, ge=0.0, le=1.0)
    """Share that is given at first."""
    by: float = Field(default=0.25, gt=0.0, le=1.0)
    """How much less is given after a group that was solved."""
    solved: float = Field(default=0.5, gt=0.0, le=1.0)
    """Share of right rollouts from which on a group counts as solved."""

    @property
    def recalled(self) -> int:
        """The last group of the problem; see `HintLaw.recalled`."""
        return 1

    def share(
        self,
        tried: Sequence[TriedShare],  # noqa: ARG002 - there is one round
        recalled: Sequence[TriedShare],
        draw: Random,  # noqa: ARG002
    ) -> float:
        """Go on from the last group; see `HintLaw.share`."""
        if not recalled:
            return self.first
        last = recalled[-1]
        due = last.num_judged > 0 and last.num_right >= self.solved * last.num_judged
        return max(0.0, last.share - self.by) if due else last.share
