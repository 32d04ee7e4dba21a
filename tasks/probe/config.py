"""Parameters of a probe."""

from pydantic import Field

from posttrain.learning.rollouts.engines.config import EngineConfig
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine
from posttrain.stage.config import StageConfig


class ProbeConfig(StageConfig):
    """Which problems are attempted, how often and how."""

    num_samples: int = Field(8, ge=1)
    """Attempts per problem."""
    num_problems: int | None = Field(None, ge=1)
    """Problems to attempt, an even share of every source and difficulty; all of them, if null."""
    temperature: float = Field(1.0, gt=0.0)
    """Sampling temperature; take RL's, so that the rates are those that RL will meet."""
    max_tokens: int = Field(72, ge=1)
    """Longest attempt, in tokens."""
    batch_size: int = Field(512, ge=1)
    """Sequences that are decoded together."""
    engine: EngineConfig = TorchEngine()
    """What samples: `torch`, or `vllm` where it is installed; a mapping also holds its settings."""
