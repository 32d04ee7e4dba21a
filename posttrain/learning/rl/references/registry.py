"""The references that ship with posttrain."""

from posttrain.learning.rl.references.base import ReferencePart
from posttrain.learning.rl.references.following import AveragedReference, Frozen, Periodic
from posttrain.learning.rl.references.restart import Restart
from posttrain.stage.slots import Slot

REFERENCES = Slot(
    "reference",
    ReferencePart,
    {"frozen": Frozen, "ema": AveragedReference, "periodic": Periodic, "restart": Restart},
    one_of=("start", "step_toward_policy"),
)
