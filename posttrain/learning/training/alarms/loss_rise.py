"""The loss is well above the least that it was."""

from collections.abc import Sequence
from statistics import fmean
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.training.alarms.base import Alarm


class LossRise(Alarm):
    """The mean loss of the last steps is far above the least mean of as many steps before them.

    A learning rate that is too high shows so, and a broken part of the data. It takes a loss that
    is never negative; where rows come from easy to hard it would cry wolf.
    """

    SOURCE = "spikes: PaLM, arXiv 2204.02311, section 5.1. The factor is own"
    METRIC: ClassVar[str] = "loss"

    kind: Literal["loss_rise"] = "loss_rise"
    grows: float = Field(default=2.0, gt=1.0)
    """How many times the least mean above which it sounds."""

    def sounds(self, values: Sequence[float]) -> str | None:
        """Compare the last steps with the best ones before them; see `Alarm.sounds`."""
        ends = range(self.steps, len(values) - self.steps + 1, self.steps)
        least = min((fmean(values[end - self.steps : end]) for end in ends), default=None)
        if least is None or least <= 0:
            return None
        now = fmean(values[-self.steps :])
        if now <= self.grows * least:
            return None
        return (
            f"the loss of the last {self.steps} steps is {now:.4g} on average, and was {least:.4g}"
            " before"
        )
