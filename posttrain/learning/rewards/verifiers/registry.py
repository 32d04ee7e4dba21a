"""The verifiers that ship with posttrain, by kind."""

from posttrain.learning.rewards.verifiers.base import Verifier
from posttrain.learning.rewards.verifiers.exact import ExactVerifier
from posttrain.learning.rewards.verifiers.format import FormatVerifier
from posttrain.learning.rewards.verifiers.judge import JudgeVerifier
from posttrain.learning.rewards.verifiers.numeric import NumericVerifier
from posttrain.learning.rewards.verifiers.reasoning_gym import GymVerifier
from posttrain.stage.slots import Slot

VERIFIERS = Slot(
    "verifier",
    Verifier,
    {
        "exact": ExactVerifier,
        "numeric": NumericVerifier,
        "reasoning_gym": GymVerifier,
        "format": FormatVerifier,
        "judge": JudgeVerifier,
    },
    one_of=("score", "verify"),
)
