"""The replays that ship with posttrain."""

from typing import Annotated

from posttrain.learning.rl.replays.base import RolloutReplay
from posttrain.learning.rl.replays.left_over import LeftOver
from posttrain.learning.rl.replays.recent import Recent
from posttrain.stage.slots import InSlot, Slot

ROLLOUT_REPLAYS = Slot(
    "replay", RolloutReplay, {"recent": Recent, "left_over": LeftOver}, one_of=("start",)
)

ReplayConfig = Annotated[RolloutReplay, InSlot(ROLLOUT_REPLAYS)]
"""The type of a field that holds a replay."""
