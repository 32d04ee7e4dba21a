"""The advantages that ship with posttrain."""

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.advantages.egae import EgaeAdvantage
from posttrain.learning.algorithms.advantages.entropy_modulated import EntropyModulatedAdvantage
from posttrain.learning.algorithms.advantages.gae import GaeAdvantage
from posttrain.learning.algorithms.advantages.group import GroupAdvantage
from posttrain.learning.algorithms.advantages.learned import LearnedAdvantage
from posttrain.learning.algorithms.advantages.outcome_credit import OutcomeCreditAdvantage
from posttrain.learning.algorithms.advantages.returns import ReturnAdvantage
from posttrain.learning.algorithms.advantages.turns import TurnAdvantage
from posttrain.stage.slots import Slot

ADVANTAGES = Slot(
    "advantage",
    Advantage,
    {
        "group": GroupAdvantage,
        "turns": TurnAdvantage,
        "returns": ReturnAdvantage,
        "gae": GaeAdvantage,
        "egae": EgaeAdvantage,
        "learned": LearnedAdvantage,
        "entropy_modulated": EntropyModulatedAdvantage,
        "outcome_credit": OutcomeCreditAdvantage,
    },
    one_of=("estimate",),
)
