"""The balances that ship with posttrain."""

from posttrain.learning.rl.balances.base import Balance
from posttrain.learning.rl.balances.improvement import ImprovementBalance
from posttrain.learning.rl.balances.progress import ProgressBalance
from posttrain.stage.slots import Slot

BALANCES = Slot(
    "balance",
    Balance,
    {"progress": ProgressBalance, "improvement": ImprovementBalance},
    one_of=("start",),
)
