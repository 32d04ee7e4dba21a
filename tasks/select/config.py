"""Parameters of a selection of problems."""

from typing import Annotated

from pydantic import Field

from posttrain.data.rankings.base import Ranking
from posttrain.data.rankings.historical_variance import HistoricalVariance
from posttrain.data.rankings.registry import RANKINGS
from posttrain.stage.config import StageConfig
from posttrain.stage.slots import InSlot


class SelectConfig(StageConfig):
    """How problems are ranked, and which places of the ranking are taken."""

    ranking: Annotated[Ranking, InSlot(RANKINGS)] = HistoricalVariance()
    """Scores the problems by the earlier run."""
    number: int = Field(default=1, ge=1)
    """Problems to take."""
    first: int = Field(default=1, ge=1)
    """Place in the ranking of the first that is taken; 1 is the highest score."""
    least_visits: int = Field(default=2, ge=1)
    """Steps of the earlier run that must have drawn a problem for it to be ranked."""
