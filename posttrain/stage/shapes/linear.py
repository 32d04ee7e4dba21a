"""A straight line."""

from typing import Literal

from posttrain.stage.shapes.base import ScheduleShape


class Linear(ScheduleShape):
    """Change by the same amount at every step.

    Source: own.
    """

    kind: Literal["linear"] = "linear"

    def value(self, start: float, end: float, progress: float) -> float:
        """Compute `start + (end - start) * progress`.

        >>> Linear().value(1.0, 3.0, 0.25)
        1.5

        Args:
            start: Value before the schedule begins.
            end: Value at its end.
            progress: How much of it has passed, from 0 to 1.

        Returns:
            The value now.

        """
        return start + (end - start) * progress
