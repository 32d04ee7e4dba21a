"""The surrogates that ship with posttrain."""

from posttrain.learning.algorithms.surrogates.base import Surrogate
from posttrain.learning.algorithms.surrogates.by_phase import ByPhaseSurrogate
from posttrain.learning.algorithms.surrogates.cispo import CispoSurrogate
from posttrain.learning.algorithms.surrogates.clip import ClipSurrogate
from posttrain.learning.algorithms.surrogates.contrastive import ContrastiveSurrogate
from posttrain.learning.algorithms.surrogates.discriminative import DiscriminativeSurrogate
from posttrain.learning.algorithms.surrogates.gmpo import GmpoSurrogate
from posttrain.learning.algorithms.surrogates.implicit_negative import ImplicitNegativeSurrogate
from posttrain.learning.algorithms.surrogates.linear_bound import LinearBoundSurrogate
from posttrain.learning.algorithms.surrogates.outcome_label import OutcomeLabelSurrogate
from posttrain.learning.algorithms.surrogates.regression import RegressionSurrogate
from posttrain.learning.algorithms.surrogates.reinforce import ReinforceSurrogate
from posttrain.learning.algorithms.surrogates.sapo import SapoSurrogate
from posttrain.learning.algorithms.surrogates.squared import SquaredSurrogate
from posttrain.learning.algorithms.surrogates.uniform_value import UniformValueSurrogate
from posttrain.stage.slots import Slot

SURROGATES = Slot(
    "surrogate",
    Surrogate,
    {
        "clip": ClipSurrogate,
        "cispo": CispoSurrogate,
        "sapo": SapoSurrogate,
        "gmpo": GmpoSurrogate,
        "squared": SquaredSurrogate,
        "regression": RegressionSurrogate,
        "reinforce": ReinforceSurrogate,
        "implicit_negative": ImplicitNegativeSurrogate,
        "outcome_label": OutcomeLabelSurrogate,
        "contrastive": ContrastiveSurrogate,
        "discriminative": DiscriminativeSurrogate,
        "uniform_value": UniformValueSurrogate,
        "linear_bound": LinearBoundSurrogate,
        "by_phase": ByPhaseSurrogate,
    },
    one_of=("token_loss",),
)
