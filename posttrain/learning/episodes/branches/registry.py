"""The branchings that ship with posttrain."""

from posttrain.learning.episodes.branches.base import Branching
from posttrain.learning.episodes.branches.entropy_rise import EntropyRise
from posttrain.stage.slots import Slot

BRANCHINGS = Slot(
    "branching",
    Branching,  # type: ignore[type-abstract]
    {"entropy_rise": EntropyRise},
    one_of=("branches",),
)
