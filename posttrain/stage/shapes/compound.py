"""Steps that grow: each is larger than the one before by the same factor."""

from typing import Literal, Self

from pydantic import Field, model_validator

from posttrain.stage.shapes.base import ScheduleShape


class Compound(ScheduleShape):
    """Change slowly at first and ever faster, by `base` times as fast at the end as at first.

    Unlike `exponential` it may begin at zero.

    Source: ZeroSearch, arXiv 2505.04588, the probability of noise: `base` 4.
    """

    kind: Literal["compound"] = "compound"
    base: float = Field(default=4.0, gt=0.0)
    """How much faster it changes at the end; below 1 it is fast at first."""

    @model_validator(mode="after")
    def _bends(self) -> Self:
        if self.base == 1.0:
            raise ValueError("a compound schedule of base 1 is a straight line; take shape: linear")
        return self

    def value(self, start: float, end: float, progress: float) -> float:
        """Compute `start + (base ** progress - 1) / (base - 1) * (end - start)`.

        >>> Compound(base=4.0).value(0.0, 0.75, 0.5)
        0.25

        Args:
            start: Value before the schedule begins.
            end: Value at its end.
            progress: How much of it has passed, from 0 to 1.

        Returns:
            The value now.

        """
        risen: float = (self.base**progress - 1) / (self.base - 1)
        return start + risen * (end - start)
