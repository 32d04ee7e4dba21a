"""The losses on pairs that are parts of their own and ship with posttrain."""

from posttrain.learning.algorithms.pair_losses.advantage_margin import AdvantageMarginLoss
from posttrain.learning.algorithms.pair_losses.base import LossOnPairs
from posttrain.learning.algorithms.pair_losses.contrastive import ContrastiveLoss
from posttrain.learning.algorithms.pair_losses.score_difference import ScoreDifferenceLoss
from posttrain.stage.slots import Slot

LOSSES_ON_PAIRS = Slot(
    "pair_loss",
    LossOnPairs,
    {
        "contrastive": ContrastiveLoss,
        "advantage_margin": AdvantageMarginLoss,
        "score_difference": ScoreDifferenceLoss,
    },
    one_of=("loss",),
)
