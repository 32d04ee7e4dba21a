"""A hint where a group failed, and a longer one where it fails again."""

from collections.abc import Sequence
from random import Random
from typing import Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.rl.hints.base import HintLaw, TriedShare


class Growth(HintLaw):
    """Give nothing first; draw a group again behind a growing hint as long as none of it is right.

    What was drawn before stays in the group; `draw.select: last_hint` learns from the last alone.

    `h = 0`, then each of `shares` in its turn while the group before it has no right rollout.
    """

    SOURCE = "GHPO, arXiv 2507.10628, section 4: a ratio that is raised while the group fails"
    LOOKS = True

    kind: Literal["growth"] = "growth"
    shares: tuple[float, ...] = Field(default=(0.25, 0.5, 0.75), min_length=1)
    """Of the solution, one try after the other."""

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if list(self.shares) != sorted({*self.shares}) or not 0 < self.shares[0] <= 1:
            raise ValueError(f"shares are {list(self.shares)}; let them rise, from above 0 to 1")
        if self.shares[-1] > 1:
            raise ValueError(f"shares end at {self.shares[-1]}; a solution has no more than 1")
        return self

    def portions(self, group_size: int) -> Sequence[int]:
        """A whole group each time; see `HintLaw.portions`."""
        return (group_size,) * (1 + len(self.shares))

    def share(
        self,
        tried: Sequence[TriedShare],
        recalled: Sequence[TriedShare],  # noqa: ARG002 - each step begins without
        draw: Random,  # noqa: ARG002
    ) -> float | None:
        """Give the next one where the last failed; see `HintLaw.share`."""
        if not tried:
            return 0.0
        return None if tried[-1].num_right else self.shares[len(tried) - 1]
