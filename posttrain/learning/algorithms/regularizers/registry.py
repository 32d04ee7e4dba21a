"""The regularizers that ship with posttrain."""

from typing import Annotated

from posttrain.learning.algorithms.regularizers.base import Regularizer
from posttrain.learning.algorithms.regularizers.distillation import DistillationRegularizer
from posttrain.learning.algorithms.regularizers.entropy import EntropyRegularizer
from posttrain.learning.algorithms.regularizers.entropy_band import EntropyBandRegularizer
from posttrain.learning.algorithms.regularizers.imitation import ImitationRegularizer
from posttrain.learning.algorithms.regularizers.kl import KlRegularizer
from posttrain.learning.algorithms.regularizers.kl_by_outcome import KlByOutcomeRegularizer
from posttrain.learning.algorithms.regularizers.kl_covariance import KlCovarianceRegularizer
from posttrain.learning.algorithms.regularizers.kl_limit import KlLimitRegularizer
from posttrain.learning.algorithms.regularizers.low_probability import LowProbabilityRegularizer
from posttrain.learning.algorithms.regularizers.nucleus_entropy import NucleusEntropyRegularizer
from posttrain.learning.algorithms.regularizers.sequence_chi_squared import (
    SequenceChiSquaredRegularizer,
)
from posttrain.stage.slots import InSlot, Slot

REGULARIZERS = Slot(
    "regularizer",
    Regularizer,
    {
        "kl": KlRegularizer,
        "entropy": EntropyRegularizer,
        "imitation": ImitationRegularizer,
        "kl_limit": KlLimitRegularizer,
        "sequence_chi_squared": SequenceChiSquaredRegularizer,
        "entropy_band": EntropyBandRegularizer,
        "nucleus_entropy": NucleusEntropyRegularizer,
        "low_probability": LowProbabilityRegularizer,
        "kl_by_outcome": KlByOutcomeRegularizer,
        "kl_covariance": KlCovarianceRegularizer,
        "distillation": DistillationRegularizer,
    },
    one_of=("token_cost", "advantage_bonus", "loss"),
)

RegularizerConfig = Annotated[Regularizer, InSlot(REGULARIZERS)]
"""The type of a field that holds a regularizer."""
