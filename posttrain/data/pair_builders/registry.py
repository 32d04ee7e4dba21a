"""The pair builders that ship with posttrain."""

from posttrain.data.pair_builders.base import PairBuilder
from posttrain.data.pair_builders.best_worst import BestWorstPairs
from posttrain.data.pair_builders.length_balanced import LengthBalancedPairs
from posttrain.data.pair_builders.verifier import VerifierPairs
from posttrain.stage.slots import Slot

PAIR_BUILDERS = Slot(
    "pair_builder",
    PairBuilder,
    {
        "verifier": VerifierPairs,
        "best_worst": BestWorstPairs,
        "length_balanced": LengthBalancedPairs,
    },
    one_of=("of_problem",),
)
