"""The environments that ship with posttrain."""

from posttrain.learning.episodes.environments.base import Environment
from posttrain.learning.episodes.environments.calculator import Calculator
from posttrain.learning.episodes.environments.single import Single
from posttrain.stage.slots import Slot

EPISODE_ENVIRONMENTS = Slot(
    "environment", Environment, {"single": Single, "calculator": Calculator}, one_of=("start",)
)
