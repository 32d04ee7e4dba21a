"""The pair builders that ship with posttrain."""

from posttrain.data.pair_builders.base import PairBuilder
from posttrain.data.pair_builders.best_worst import BestWorstPairs
from posttrain.data.pair_builders.length_balanced import LengthBalancedPairs
from posttrain.data.pair_builders.margin import MarginPairs
from posttrain.data.pair_builders.policy_vs_reference import PolicyVsReferencePairs
from posttrain.data.pair_builders.reward_augmented import RewardAugmentedPairs
from posttrain.data.pair_builders.steps import StepPairs
from posttrain.data.pair_builders.verifier import VerifierPairs
from posttrain.stage.slots import Slot

PAIR_BUILDERS = Slot(
    "pair_builder",
    PairBuilder,
    {
        "verifier": VerifierPairs,
        "best_worst": BestWorstPairs,
        "length_balanced": LengthBalancedPairs,
        "margin": MarginPairs,
        "policy_vs_reference": PolicyVsReferencePairs,
        "reward_augmented": RewardAugmentedPairs,
        "steps": StepPairs,
    },
    one_of=("of_problem",),
)
