"""The terms beside a loss on pairs that ship with posttrain."""

from posttrain.learning.algorithms.pair_terms.base import PairTerm
from posttrain.learning.algorithms.pair_terms.own_divergence import OwnDivergence
from posttrain.stage.slots import Slot

PAIR_TERMS = Slot("pair_term", PairTerm, {"own_divergence": OwnDivergence}, one_of=("term",))
