"""The pair oracles that ship with posttrain."""

from posttrain.learning.rewards.components.oracles.base import PairOracle as PairOracle
from posttrain.learning.rewards.components.oracles.judge import JudgeOracle
from posttrain.learning.rewards.components.oracles.latent_game import LatentGameOracle
from posttrain.learning.rewards.components.oracles.model import ModelOracle
from posttrain.learning.rewards.components.oracles.pair_model import PairModelOracle
from posttrain.learning.rewards.components.oracles.verifier import VerifierOracle
from posttrain.stage.slots import Slot

PAIR_ORACLES = Slot(
    "pair_oracle",
    PairOracle,
    {
        "verifier": VerifierOracle,
        "judge": JudgeOracle,
        "model": ModelOracle,
        "pair_model": PairModelOracle,
        "latent_game": LatentGameOracle,
    },
    one_of=("prefers",),
)
