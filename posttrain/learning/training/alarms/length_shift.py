"""Answers have become far shorter, or far longer, than they were."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.training.alarms.base import Alarm


class LengthShift(Alarm):
    """The mean length of answers has left a range about what it was at first.

    Answers that shrink to nothing, or grow without being better, are what a reward or a loss by
    length makes of a policy. The range is our own choice: reasoning that is learned well grows by
    more than twice, too.
    """

    SOURCE = (
        "growth of wrong answers: Dr. GRPO, arXiv 2503.20783, section 3.1; as a sign of a run's"
        " health: DAPO, arXiv 2503.14476, section 4.3. The range is own"
    )
    METRIC: ClassVar[str] = "length"

    kind: Literal["length_shift"] = "length_shift"
    shrinks: float = Field(default=0.25, ge=0.0, lt=1.0)
    """Share of the mean of the first `steps` steps below which it sounds."""
    grows: float = Field(default=4.0, gt=1.0)
    """How many times that mean above which it sounds."""

    def sounds(self, values: Sequence[float]) -> str | None:
        """Compare the last steps with the first ones; see `Alarm.sounds`."""
        first = self.at_first(values)
        if first is None:
            return None
        if self.lasts(values, lambda value: value < self.shrinks * first):
            told = "collapsed"
        elif self.lasts(values, lambda value: value > self.grows * first):
            told = "exploded"
        else:
            return None
        return f"the length of answers {told}: from {first:.4g} tokens at first to {values[-1]:.4g}"
