"""The references that ship with posttrain."""

from posttrain.learning.rl.references.base import Reference
from posttrain.learning.rl.references.following import Frozen, MovingAverage, Periodic
from posttrain.learning.rl.references.restart import Restart
from posttrain.stage.slots import Slot

REFERENCES = Slot(
    "reference",
    Reference,
    {"frozen": Frozen, "ema": MovingAverage, "periodic": Periodic, "restart": Restart},
)
