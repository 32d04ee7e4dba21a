"""There and back."""

from typing import Literal

from pydantic import Field

from posttrain.stage.shapes.base import ScheduleShape


class Cycle(ScheduleShape):
    """Swing between both values in straight lines, `returns` times back, and end at the last.

    Source: the triangular policy of Smith, arXiv 1506.01186, there of the learning rate.
    """

    kind: Literal["cycle"] = "cycle"
    returns: int = Field(default=1, ge=1)
    """Times that the number comes back to its first value on the way."""

    def value(self, start: float, end: float, progress: float) -> float:
        """Compute the place on a triangle wave of `2 returns + 1` legs.

        >>> [Cycle().value(0.0, 1.0, progress / 6) for progress in (1, 2, 3, 4, 5)]
        [0.5, 1.0, 0.5, 0.0, 0.5]

        Args:
            start: Value before the schedule begins.
            end: Value at its end.
            progress: How much of it has passed, from 0 to 1.

        Returns:
            The value now.

        """
        leg, along = divmod(progress * (2 * self.returns + 1), 1.0)
        return start + (end - start) * (1 - along if leg % 2 else along)
