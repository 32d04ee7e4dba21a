"""Stairs."""

import math
from typing import Literal

from pydantic import Field

from posttrain.stage.shapes.base import ScheduleShape


class Step(ScheduleShape):
    """Hold the first value and jump, in `jumps` equal jumps of which the last is at the end.

    Source: the linear budget of Train Long, Think Short, arXiv 2508.08940, section 4.6.
    """

    kind: Literal["step"] = "step"
    jumps: int = Field(default=1, ge=1)
    """Number of equal jumps: with 1 the number changes once, after `over` steps."""

    def value(self, start: float, end: float, progress: float) -> float:
        """Compute `start + (end - start) * floor(progress * jumps) / jumps`.

        >>> [Step(jumps=2).value(0.0, 1.0, progress) for progress in (0.4, 0.5, 0.9)]
        [0.0, 0.5, 0.5]

        Args:
            start: Value before the schedule begins.
            end: Value at its end.
            progress: How much of it has passed, from 0 to 1.

        Returns:
            The value now.

        """
        return start + (end - start) * math.floor(progress * self.jumps) / self.jumps
