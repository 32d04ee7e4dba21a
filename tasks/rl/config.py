"""Parameters of the stage: those of the loop that it runs, and what samples."""

from posttrain.learning.rl.config import RlConfig
from posttrain.learning.rollouts.engines.config import EngineConfig
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine


class RlStageConfig(RlConfig):
    """Rollouts, advantages, loss and optimization."""

    MECHANICS = RlConfig.MECHANICS | {"engine"}
    engine: EngineConfig = TorchEngine()
    """What samples: `torch`, or `vllm` where it is installed; a mapping also holds its settings."""
