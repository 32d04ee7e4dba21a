"""Right answers earn more where they are short, wrong ones lose less where they are long."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry, Range


class CosineLengthComponent(Component):
    """From one value at length 0 to another at the limit along half a cosine, by right and wrong.

    ``long + (short - long) (1 + cos(pi length / limit)) / 2``. With a verifier beside it these
    values come on top of its 0 or 1; alone (the verifier with weight 0) they are the whole reward,
    with the authors' own values ``right: [2, 1], wrong: [-10, 0], cut_off: -10``. A cut-off answer
    gets `cut_off` unless it counts as right: with `truncated: fails`, as there, none does.
    """

    SOURCE = "Demystifying Long CoT, arXiv 2502.03373; the authors' reward/cosine.py"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"solved"})
    RANGE: ClassVar[Range] = (-math.inf, math.inf)

    kind: Literal["cosine_length"] = "cosine_length"
    right: tuple[float, float] = (1.0, 0.0)
    """What a right answer earns at length 0 and at the limit."""
    wrong: tuple[float, float] = (-1.0, 0.0)
    """What a wrong one earns at length 0 and at the limit."""
    cut_off: float = -1.0
    """What a wrong answer earns that was cut off."""
    limit: int | None = Field(default=None, ge=1)
    """The limit in tokens; null takes that of generation."""

    @model_validator(mode="after")
    def _right_is_better(self) -> Self:
        if min(self.right) < max(*self.wrong, self.cut_off):
            raise ValueError(
                f"a wrong answer may get {max(*self.wrong, self.cut_off):g} and a right one"
                f" {min(self.right):g}; raise `right`, or lower `wrong` and `cut_off`"
            )
        return self

    def bounds(self, *, solved: bool) -> Range:
        """Return the ends of right answers, or of wrong ones."""
        ends = self.right if solved else (*self.wrong, self.cut_off)
        return min(ends), max(ends)

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Go along the curve; see `Component.score`."""
        limit = known.longest(self.limit)
        return [
            None if right is None else self._paid(length / limit, right=right, cut_off=cut)
            for right, length, cut in zip(group.solved, group.lengths, group.truncated, strict=True)
        ]

    def _paid(self, share: float, *, right: bool, cut_off: bool) -> float:
        if cut_off and not right:
            return self.cut_off
        short, long = self.right if right else self.wrong
        # In this form both ends are met exactly.
        along = (1.0 + math.cos(math.pi * min(share, 1.0))) / 2
        return along * short + (1.0 - along) * long
