"""The searches that ship with posttrain."""

from posttrain.learning.rollouts.searches.base import Search
from posttrain.learning.rollouts.searches.tree import TreeSearch
from posttrain.stage.slots import Slot

SEARCHES = Slot("search", Search, {"tree": TreeSearch}, one_of=("attempts",))
