"""Engine and trainer drift apart."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.training.alarms.base import Alarm


class LogprobGap(Alarm):
    """The engine's log-probabilities lie further and further from the trainer's.

    It rises before a run with an inexact engine collapses. `max_logprob_gap` ends a run at one
    number; this sees the rise. Both numbers are our own choice: benchmarks/learner has the gaps
    of bf16 here.
    """

    SOURCE = (
        "the gap before a collapse: Liu, Li et al., When Speed Kills Stability, 2025;"
        " arXiv 2605.14220. The numbers are own"
    )
    METRIC: ClassVar[str] = "logprob_gap"

    kind: Literal["logprob_gap"] = "logprob_gap"
    grows: float = Field(default=3.0, gt=1.0)
    """How many times the mean of the first `steps` steps above which it sounds."""
    least: float = Field(default=0.01, gt=0.0)
    """Mean gap in nats a token that is never worth a word."""

    def sounds(self, values: Sequence[float]) -> str | None:
        """Compare the last steps with the first ones; see `Alarm.sounds`."""
        first = self.at_first(values)
        if first is None:
            return None
        limit = max(self.least, self.grows * first)
        if not self.lasts(values, lambda value: value > limit):
            return None
        return (
            f"the engine's log-probabilities were further than {limit:.2g} nats a token from the"
            f" trainer's in each of the last {self.steps} steps, and {first:.2g} at first"
        )
