"""Most answers are cut off."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.training.alarms.base import Alarm


class Truncation(Alarm):
    """Most answers are cut off at the limit of tokens, so that the limit is what is learned.

    Raise `max_tokens`, or say what becomes of such answers (`reward.truncated`). That it is half of
    them is our own choice; DAPO masks or penalizes each of them.
    """

    SOURCE = "noise of truncated answers: DAPO, arXiv 2503.14476, section 3.4. The share is own"
    METRIC: ClassVar[str] = "truncation_rate"

    kind: Literal["truncation"] = "truncation"
    most: float = Field(default=0.5, gt=0.0, lt=1.0)
    """Share of the answers above which it sounds."""

    def sounds(self, values: Sequence[float]) -> str | None:
        """Hold the last steps to `most`; see `Alarm.sounds`."""
        if not self.lasts(values, lambda value: value > self.most):
            return None
        return (
            f"more than {self.most:.0%} of the answers were cut off in each of the last"
            f" {self.steps} steps, {values[-1]:.0%} in the last"
        )
