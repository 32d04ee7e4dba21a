"""The inference strategies that ship with posttrain."""

from posttrain.learning.rollouts.strategies.base import Strategy
from posttrain.learning.rollouts.strategies.best_of_n import BestOfNStrategy
from posttrain.learning.rollouts.strategies.length_filtered_vote import LengthFilteredVote
from posttrain.learning.rollouts.strategies.sample import SampleStrategy
from posttrain.learning.rollouts.strategies.vote import VoteStrategy
from posttrain.stage.slots import Slot

STRATEGIES = Slot(
    "strategy",
    Strategy,
    {
        "sample": SampleStrategy,
        "vote": VoteStrategy,
        "best_of_n": BestOfNStrategy,
        "length_filtered_vote": LengthFilteredVote,
    },
    one_of=("solved",),
)
