"""The combinations of reward components that ship with posttrain, by kind."""

from posttrain.learning.rewards.combines.base import Combine
from posttrain.learning.rewards.combines.sum import SumCombine
from posttrain.stage.slots import Slot

COMBINES = Slot("combine", Combine, {"sum": SumCombine}, one_of=("combine",))
