"""The foreign losses that ship with posttrain."""

from posttrain.learning.algorithms.foreign_losses.balanced import Balanced
from posttrain.learning.algorithms.foreign_losses.base import ForeignLoss
from posttrain.learning.algorithms.foreign_losses.shaped import Shaped
from posttrain.stage.slots import Slot

FOREIGN_LOSSES = Slot(
    "foreign_loss",
    ForeignLoss,
    {"shaped": Shaped, "balanced": Balanced},
    one_of=("token_loss",),
)
