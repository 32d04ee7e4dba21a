"""A straight line."""

from typing import Literal

from posttrain.stage.shapes.base import ScheduleShape


class Linear(ScheduleShape):
    """Change by the same amount at every step."""

    kind: Literal["linear"] = "linear"

    def value(self, start: float, end: float, progress: float) -> float:
        """Compute `start + (end - start) * progress`.

        >>> Linear().value(1.0, 3.0, 0.25)
        1.5
        """
        return start + (end - start) * progress
