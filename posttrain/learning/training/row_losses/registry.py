"""The losses of supervised fine-tuning that ship with posttrain."""

from posttrain.learning.training.row_losses.advantage_leftover import AdvantageLeftover
from posttrain.learning.training.row_losses.base import RowLoss
from posttrain.learning.training.row_losses.cross_entropy import CrossEntropy
from posttrain.learning.training.row_losses.f_divergence import FDivergence
from posttrain.learning.training.row_losses.inverse_soft_q import InverseSoftQ
from posttrain.learning.training.row_losses.negative_aware import NegativeAware
from posttrain.learning.training.row_losses.soft_targets import SoftTargetsLoss
from posttrain.learning.training.row_losses.unlikelihood import Unlikelihood
from posttrain.stage.slots import Slot

ROW_LOSSES = Slot(
    "row_loss",
    RowLoss,
    {
        "cross_entropy": CrossEntropy,
        "unlikelihood": Unlikelihood,
        "negative_aware": NegativeAware,
        "inverse_soft_q": InverseSoftQ,
        "f_divergence": FDivergence,
        "advantage_leftover": AdvantageLeftover,
        "soft_targets": SoftTargetsLoss,
    },
    one_of=("losses",),
)
