"""The same factor at every step."""

from typing import Literal

from posttrain.stage.shapes.base import ScheduleShape


class Exponential(ScheduleShape):
    """Change by the same factor at every step; both ends must have one sign and not be zero.

    Source: the budget of Train Long, Think Short, arXiv 2508.08940, section 3.4, which falls in
    steps.
    """

    kind: Literal["exponential"] = "exponential"

    def refuse(self, start: float, end: float) -> str | None:
        """Refuse zero and a change of sign: no factor leads there; see `ScheduleShape.refuse`."""
        if start * end > 0:
            return None
        return (
            f"an exponential schedule cannot go from {start:g} to {end:g}; give both ends one sign"
            " and neither zero, or take shape: linear"
        )

    def value(self, start: float, end: float, progress: float) -> float:
        """Compute `start * (end / start) ** progress`.

        >>> Exponential().value(1.0, 16.0, 0.25)
        2.0

        Args:
            start: Value before the schedule begins.
            end: Value at its end.
            progress: How much of it has passed, from 0 to 1.

        Returns:
            The value now.

        """
        return float(start * (end / start) ** progress)
