"""An alarm watches a metric of the steps of a run. In the recipe:

rl:
  alarms: {stuck: {kind: stuck, does: stop, steps: 20}}
"""

from typing import ClassVar, Literal

from posttrain.learning.training.alarms.base import Alarm


class Stuck(Alarm):
    """The share of problems that are solved throughout does not change at all."""

    METRIC: ClassVar[str] = "all_solved"
    kind: Literal["stuck"] = "stuck"

    def sounds(self, values):
        first = values[-1:]
        if not self.lasts(values, lambda value: [value] == first):
            return None
        return f"the share of solved problems was {values[-1]:.0%} in {self.steps} steps in a row"


PARTS = {"alarm": {"stuck": Stuck}}
