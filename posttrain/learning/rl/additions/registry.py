"""The additions that ship with posttrain."""

from typing import Annotated

from posttrain.learning.rl.additions.base import Addition
from posttrain.learning.rl.additions.criticized import Criticized
from posttrain.learning.rl.additions.refinements import Refinements
from posttrain.learning.rl.additions.rethought import Rethought
from posttrain.learning.rl.additions.stored import Stored
from posttrain.learning.rl.additions.tempered import Tempered
from posttrain.learning.rl.additions.traces import Traces
from posttrain.stage.slots import InSlot, Slot

ADDITIONS = Slot(
    "addition",
    Addition,
    {
        "traces": Traces,
        "stored": Stored,
        "refinements": Refinements,
        "criticized": Criticized,
        "rethought": Rethought,
        "tempered": Tempered,
    },
    one_of=("start",),
)

AdditionConfig = Annotated[Addition, InSlot(ADDITIONS)]
"""The type of a field that holds an addition."""
