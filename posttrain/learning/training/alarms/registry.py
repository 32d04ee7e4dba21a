"""The alarms that ship with posttrain."""

from posttrain.learning.training.alarms.base import Alarm
from posttrain.learning.training.alarms.entropy_collapse import EntropyCollapse
from posttrain.learning.training.alarms.flat_reward import FlatReward
from posttrain.learning.training.alarms.length_shift import LengthShift
from posttrain.learning.training.alarms.logprob_gap import LogprobGap
from posttrain.learning.training.alarms.loss_rise import LossRise
from posttrain.learning.training.alarms.truncation import Truncation
from posttrain.stage.slots import Slot

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
