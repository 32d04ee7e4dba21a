"""The hint laws that ship with posttrain."""

from posttrain.learning.rl.hints.base import HintLaw
from posttrain.learning.rl.hints.fixed import Fixed
from posttrain.learning.rl.hints.growth import Growth
from posttrain.learning.rl.hints.item_response import ItemResponse
from posttrain.learning.rl.hints.retreating import Retreating
from posttrain.learning.rl.hints.scattered import Scattered
from posttrain.stage.slots import Slot

HINT_LAWS = Slot(
    "hint_law",
    HintLaw,
    {
        "fixed": Fixed,
        "growth": Growth,
        "item_response": ItemResponse,
        "retreating": Retreating,
        "scattered": Scattered,
    },
    one_of=("share",),
)
