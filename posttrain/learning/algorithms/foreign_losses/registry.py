"""The foreign losses that ship with posttrain."""

from typing import Annotated

from posttrain.learning.algorithms.foreign_losses.balanced import Balanced
from posttrain.learning.algorithms.foreign_losses.base import ForeignLoss
from posttrain.learning.algorithms.foreign_losses.cloned import Cloned
from posttrain.learning.algorithms.foreign_losses.importance import Importance
from posttrain.learning.algorithms.foreign_losses.shaped import Shaped
from posttrain.stage.slots import InSlot, Slot

FOREIGN_LOSSES = Slot(
    "foreign_loss",
    ForeignLoss,
    {"shaped": Shaped, "balanced": Balanced, "cloned": Cloned, "importance": Importance},
    one_of=("token_loss", "batch_loss"),
)

ForeignLossConfig = Annotated[ForeignLoss, InSlot(FOREIGN_LOSSES)]
"""The type of a field that holds a foreign loss."""
