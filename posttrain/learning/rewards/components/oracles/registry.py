"""The pair oracles that ship with posttrain."""

from posttrain.learning.rewards.components.oracles.base import PairOracle as PairOracle
from posttrain.learning.rewards.components.oracles.judge import JudgeOracle
from posttrain.learning.rewards.components.oracles.verifier import VerifierOracle
from posttrain.stage.slots import Slot

PAIR_ORACLES = Slot(
    "pair_oracle",
    PairOracle,
    {"verifier": VerifierOracle, "judge": JudgeOracle},
    one_of=("prefers",),
)
