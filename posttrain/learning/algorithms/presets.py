"""Every named algorithm. What each is called in print says less than its switches do."""

from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.frameworks import FRAMEWORK_METHODS
from posttrain.learning.algorithms.preset import Preset
from posttrain.learning.algorithms.published import GROUP_METHODS
from posttrain.learning.algorithms.reinforce_family import REINFORCE_METHODS

DEFAULT = "default"

PRESETS: dict[str, Preset] = {
    DEFAULT: Preset(
        algorithm=Algorithm(),
        equation="A = r - mean_G r\nL = -1/Σ|o_i| Σ_i Σ_t min(ρ A, clip(ρ, 0.8, 1.28) A)",
        source="posttrain's own",
        note=(
            "Dr.GRPO's advantage, DAPO's clip-higher and token mean. The ratio is to the sampler's"
            " own log-probabilities, which a gate of the stage holds near the trainer's."
        ),
    ),
    **GROUP_METHODS,
    **REINFORCE_METHODS,
    **FRAMEWORK_METHODS,
}
