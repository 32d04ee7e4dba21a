"""The policy hardly draws anything but what it is sure of."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.training.alarms.base import Alarm


class EntropyCollapse(Alarm):
    """The entropy of what is drawn has fallen to a `share` of what it was at first.

    Little is learned after it: where answers of a problem are all alike, so are their rewards. The
    share is our own choice: a model that has just been taught a form begins near 0.1 nats a token,
    where a reasoning model is held above 0.2, so that no number of nats serves both.
    """

    SOURCE = (
        "collapse: arXiv 2505.22617 (the entropy mechanism), section 2; DAPO, arXiv 2503.14476,"
        " section 3.1; held above a target: Skywork-OR1, arXiv 2505.22312. The share is own"
    )
    METRIC: ClassVar[str] = "entropy"

    kind: Literal["entropy_collapse"] = "entropy_collapse"
    share: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Of the mean of the first `steps` steps."""
    least: float = Field(default=0.0, ge=0.0)
    """Entropy in nats a token below which it sounds, too, whatever it was at first."""

    def sounds(self, values: Sequence[float]) -> str | None:
        """Compare the last steps with the first ones; see `Alarm.sounds`."""
        first = self.at_first(values)
        if first is not None and self.lasts(values, lambda value: value < self.share * first):
            told = f"below a share of {self.share:g} of the {first:.3g} that it was at first"
        elif self.lasts(values, lambda value: value < self.least):
            told = f"below {self.least:g}"
        else:
            return None
        return f"the entropy was {told} in the last {self.steps} steps, and is {values[-1]:.3g}"
