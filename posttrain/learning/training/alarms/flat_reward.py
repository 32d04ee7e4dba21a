"""No group of answers is told apart any more."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.training.alarms.base import Alarm


class FlatReward(Alarm):
    """Hardly a rollout is in a group whose answers differ: there is nothing to learn from.

    All problems are too hard, too easy, or scored alike; advantages are 0, and what moves the
    policy is a regularizer or noise. None at all is what the default takes for that.
    """

    SOURCE = "groups without a gradient: DAPO, arXiv 2503.14476, section 3.2. The share is own"
    METRIC: ClassVar[str] = "yield"

    kind: Literal["flat_reward"] = "flat_reward"
    most: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Share of the rollouts in groups that the solver tells apart, at which it sounds."""

    def sounds(self, values: Sequence[float]) -> str | None:
        """Hold the last steps to `most`; see `Alarm.sounds`."""
        if not self.lasts(values, lambda value: value <= self.most):
            return None
        return (
            f"at most {self.most:.0%} of the rollouts of each of the last {self.steps} steps were"
            " in a group whose answers the solver tells apart, so there is nothing to learn from"
        )
