"""The slot of the alarms: what a part of it implements, and what a series of steps is held to."""

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.stage.slots import Part


class Alarm(Part):
    """Watches one metric of the steps.

    It has no state: what it says follows from the curve, which a checkpoint holds.
    """

    METRIC: ClassVar[str] = ""
    """What it watches, by the name that the stage's curve has after that of the stage."""

    does: Literal["warn", "stop"] = "warn"
    """A note when it begins; or the run ends, with its rollouts and a checkpoint kept, and goes on
    from there once the alarm is changed."""
    steps: int = Field(default=10, ge=1)
    """Steps in a row that must be so."""

    def sounds(self, values: Sequence[float]) -> str | None:
        """Judge the metric's values so far.

        Args:
            values: One for each step that measured it, the last one last.

        Returns:
            What is wrong, as the end of a sentence; None where nothing is.

        """
        raise NotImplementedError

    def lasts(self, values: Sequence[float], wrong: Callable[[float], bool]) -> bool:
        """Tell whether the last `steps` values are all wrong.

        Args:
            values: Of the steps so far.
            wrong: Judges one of them.

        Returns:
            False too where there are not as many yet.

        """
        last = values[-self.steps :]
        return len(last) == self.steps and all(map(wrong, last))

    def at_first(self, values: Sequence[float]) -> float | None:
        """Average the first `steps` values; None where no others came after them."""
        return fmean(values[: self.steps]) if len(values) >= 2 * self.steps else None
