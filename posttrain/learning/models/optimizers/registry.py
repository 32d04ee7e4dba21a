"""The optimizers that ship with posttrain."""

from posttrain.learning.models.optimizers.adamw import AdamW
from posttrain.learning.models.optimizers.base import OptimizerPart
from posttrain.learning.models.optimizers.muon import Muon
from posttrain.stage.slots import Slot

OPTIMIZERS = Slot("optimizer", OptimizerPart, {"adamw": AdamW, "muon": Muon}, one_of=("build",))
