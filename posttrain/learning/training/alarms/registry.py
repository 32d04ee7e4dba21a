"""The alarms that ship with posttrain."""

from typing import Annotated

from posttrain.learning.algorithms.part import named_parts
from posttrain.learning.training.alarms.base import Alarm
from posttrain.learning.training.alarms.entropy_collapse import EntropyCollapse
from posttrain.learning.training.alarms.flat_reward import FlatReward
from posttrain.learning.training.alarms.length_shift import LengthShift
from posttrain.learning.training.alarms.logprob_gap import LogprobGap
from posttrain.learning.training.alarms.loss_rise import LossRise
from posttrain.learning.training.alarms.truncation import Truncation
from posttrain.stage.slots import InSlot, Slot

ALARMS = Slot(
    "alarm",
    Alarm,
    {
        "entropy_collapse": EntropyCollapse,
        "length_shift": LengthShift,
        "flat_reward": FlatReward,
        "truncation": Truncation,
        "logprob_gap": LogprobGap,
        "loss_rise": LossRise,
    },
    one_of=("sounds",),
)


def usual_alarms() -> dict[str, Alarm]:
    """Return those of RL where a recipe says nothing: all warn."""
    usual = (EntropyCollapse(), LengthShift(), FlatReward(), Truncation(), LogprobGap())
    return {each.kind: each for each in usual}


AlarmsConfig = Annotated[dict[str, Annotated[Alarm, InSlot(ALARMS)]], named_parts(ALARMS)]
"""The type of a field that holds alarms by name; a kind of that name needs no other word."""
