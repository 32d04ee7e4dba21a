"""The combinations of reward components that ship with posttrain, by kind."""

from posttrain.learning.rewards.combines.advantages import AdvantagesCombine
from posttrain.learning.rewards.combines.base import Combine
from posttrain.learning.rewards.combines.gated import GatedCombine
from posttrain.learning.rewards.combines.lagrangian import LagrangianCombine
from posttrain.learning.rewards.combines.product import ProductCombine
from posttrain.learning.rewards.combines.sum import SumCombine
from posttrain.stage.slots import Slot

COMBINES = Slot(
    "combine",
    Combine,
    {
        "sum": SumCombine,
        "gated": GatedCombine,
        "product": ProductCombine,
        "lagrangian": LagrangianCombine,
        "advantages": AdvantagesCombine,
    },
    one_of=("combine",),
)
