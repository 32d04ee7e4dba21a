"""The additions that ship with posttrain."""

from posttrain.learning.rl.additions.base import Addition
from posttrain.learning.rl.additions.refinements import Refinements
from posttrain.learning.rl.additions.tempered import Tempered
from posttrain.learning.rl.additions.traces import Traces
from posttrain.stage.slots import Slot

ADDITIONS = Slot(
    "addition",
    Addition,
    {"traces": Traces, "refinements": Refinements, "tempered": Tempered},
    one_of=("start",),
)
