"""The balances that ship with posttrain."""

from posttrain.learning.rl.balances.base import Balance
from posttrain.learning.rl.balances.progress import Progress
from posttrain.stage.slots import Slot

BALANCES = Slot("balance", Balance, {"progress": Progress}, one_of=("start",))
