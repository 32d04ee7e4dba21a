"""The variants that ship with posttrain."""

from posttrain.learning.rollouts.variants.base import Variant
from posttrain.learning.rollouts.variants.beam import Beam
from posttrain.learning.rollouts.variants.best_step import BestStep
from posttrain.learning.rollouts.variants.budgets import Budgets
from posttrain.learning.rollouts.variants.by_source import BySource
from posttrain.learning.rollouts.variants.end_scaled import EndScaled
from posttrain.learning.rollouts.variants.intervention import Intervention
from posttrain.learning.rollouts.variants.length_bins import LengthBins
from posttrain.learning.rollouts.variants.length_halves import LengthHalves
from posttrain.learning.rollouts.variants.retrieved import Retrieved
from posttrain.learning.rollouts.variants.stated_view import StatedView
from posttrain.stage.slots import Slot

VARIANTS = Slot(
    "variant",
    Variant,
    {
        "intervention": Intervention,
        "budgets": Budgets,
        "length_bins": LengthBins,
        "length_halves": LengthHalves,
        "beam": Beam,
        "best_step": BestStep,
        "retrieved": Retrieved,
        "end_scaled": EndScaled,
        "by_source": BySource,
        "stated_view": StatedView,
    },
    one_of=("measured",),
)
