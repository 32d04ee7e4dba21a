"""The environments that ship with posttrain, worlds among them."""

from posttrain.learning.episodes.environments.base import Environment
from posttrain.learning.episodes.environments.calculator import Calculator
from posttrain.learning.episodes.environments.single import Single
from posttrain.learning.episodes.worlds.bandit import Bandit
from posttrain.learning.episodes.worlds.guess import Guess
from posttrain.stage.slots import Slot

EPISODE_ENVIRONMENTS = Slot(
    "environment",
    Environment,  # type: ignore[type-abstract]
    {"single": Single, "calculator": Calculator, "bandit": Bandit, "guess": Guess},
    one_of=("start",),
)
