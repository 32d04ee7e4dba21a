"""Half a wave of the cosine."""

import math
from typing import ClassVar, Literal

from posttrain.stage.shapes.base import ScheduleShape


class Cosine(ScheduleShape):
    """Change slowly at both ends and fastest in the middle, as half a cosine wave."""

    SOURCE: ClassVar[str] = "Loshchilov and Hutter 2017 (arXiv:1608.03983), equation 5"
    kind: Literal["cosine"] = "cosine"

    def value(self, start: float, end: float, progress: float) -> float:
        """Compute `end + (start - end) * (1 + cos(pi * progress)) / 2`.

        >>> round(Cosine().value(1.0, 0.0, 1 / 3), 6)
        0.75

        Args:
            start: Value before the schedule begins.
            end: Value at its end.
            progress: How much of it has passed, from 0 to 1.

        Returns:
            The value now.

        """
        return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2
