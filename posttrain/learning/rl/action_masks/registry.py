"""The action masks that ship with posttrain."""

from typing import Annotated

from posttrain.learning.rl.action_masks.base import ActionMask
from posttrain.learning.rl.action_masks.nucleus import Nucleus
from posttrain.stage.slots import InSlot, Slot

ACTION_MASKS = Slot("action_mask", ActionMask, {"nucleus": Nucleus}, one_of=("start",))

ActionMaskConfig = Annotated[ActionMask, InSlot(ACTION_MASKS)]
"""The type of a field that holds an action mask."""
