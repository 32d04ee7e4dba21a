"""Parameters of a merge."""

from typing import Annotated

from posttrain.learning.models.merges.average import Average
from posttrain.learning.models.merges.base import Merge
from posttrain.learning.models.merges.registry import MERGES
from posttrain.stage.config import StageConfig
from posttrain.stage.slots import InSlot


class MergeConfig(StageConfig):
    """How the models are put together."""

    method: Annotated[Merge, InSlot(MERGES)] = Average()
    """Combines the weights: `average`, or a mapping with a kind and its settings."""
