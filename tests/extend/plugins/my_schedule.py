"""A schedule shape says how a number goes from one value to another. In the recipe:

rl:
  temperature: {from: 1.0, to: 0.8, over: 3, shape: {kind: power, exponent: 3.0}}
"""

from typing import Literal

from posttrain.stage.shapes.base import ScheduleShape


class Power(ScheduleShape):
    """Change slowly at first, by a power of the progress."""

    kind: Literal["power"] = "power"
    exponent: float = 2.0
    """1 is a straight line."""

    def value(self, start: float, end: float, progress: float) -> float:
        """Compute `start + (end - start) * progress ** exponent`."""
        return start + (end - start) * progress**self.exponent


PARTS = {"schedule": {"power": Power}}
