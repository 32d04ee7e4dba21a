"""The rankings that ship with posttrain."""

from posttrain.data.rankings.base import Ranking
from posttrain.data.rankings.historical_variance import HistoricalVariance
from posttrain.data.rankings.learning_impact import LearningImpact
from posttrain.stage.slots import Slot

RANKINGS = Slot(
    "ranking",
    Ranking,
    {"historical_variance": HistoricalVariance, "learning_impact": LearningImpact},
    one_of=("scores",),
)
