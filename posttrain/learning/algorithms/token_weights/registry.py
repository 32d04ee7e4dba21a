"""The token weights that ship with posttrain."""

from posttrain.learning.algorithms.token_weights.band import BandWeight
from posttrain.learning.algorithms.token_weights.base import TokenWeight
from posttrain.learning.algorithms.token_weights.covariance import CovarianceWeight
from posttrain.learning.algorithms.token_weights.divergence import DivergenceWeight
from posttrain.learning.algorithms.token_weights.drift import DriftWeight
from posttrain.learning.algorithms.token_weights.entropy import EntropyWeight
from posttrain.learning.algorithms.token_weights.importance import ImportanceWeight
from posttrain.learning.algorithms.token_weights.likely_by_reference import (
    LikelyByReferenceWeight,
)
from posttrain.learning.algorithms.token_weights.long_failures import LongFailuresWeight
from posttrain.learning.algorithms.token_weights.outcome import OutcomeWeight
from posttrain.learning.algorithms.token_weights.planning_grams import PlanningGramsWeight
from posttrain.learning.algorithms.token_weights.turn import TurnWeight
from posttrain.stage.slots import Slot

TOKEN_WEIGHTS = Slot(
    "token_weight",
    TokenWeight,
    {
        "importance": ImportanceWeight,
        "band": BandWeight,
        "drift": DriftWeight,
        "turn": TurnWeight,
        "entropy": EntropyWeight,
        "divergence": DivergenceWeight,
        "outcome": OutcomeWeight,
        "long_failures": LongFailuresWeight,
        "planning_grams": PlanningGramsWeight,
        "covariance": CovarianceWeight,
        "likely_by_reference": LikelyByReferenceWeight,
    },
    one_of=("of_generation", "of_update"),
)
