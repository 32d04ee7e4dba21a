"""How a stage samples a policy's answers to problems: the parameters that such stages share."""

from typing import TYPE_CHECKING

from pydantic import Field

from posttrain.learning.rewards.truncated import Truncated
from posttrain.learning.rollouts.engines.config import EngineConfig
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine
from posttrain.stage.config import StageConfig

if TYPE_CHECKING:
    from posttrain.learning.rollouts.engines.base import SamplingParams


class SamplingConfig(StageConfig):
    """How often, how long and by which engine answers are sampled."""

    num_samples: int = Field(default=8, ge=1)
    """Samples per problem."""
    temperature: float = Field(default=1.0, gt=0.0)
    """Sampling temperature; at 1 answers come with the policy's own probabilities."""
    max_tokens: int = Field(default=72, ge=1)
    """Longest completion, in tokens."""
    truncated: Truncated = "counts"
    """What becomes of an answer cut off at max_tokens: it counts as it stands (`counts`, and
    `masked` where nothing is learned), fails whatever it states (`fails`), or is not judged
    (`dropped`); as in rl.reward."""
    batch_size: int = Field(default=512, ge=1)
    """Sequences that are decoded together."""
    engine: EngineConfig = TorchEngine()
    """What samples: `torch`, or `vllm` where it is installed; a mapping also holds its settings."""

    def params(self, seed: int) -> "SamplingParams":
        """Return what an engine is told, with the seed of the samples."""
        from posttrain.learning.rollouts.engines.base import SamplingParams

        return SamplingParams(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            num_samples=self.num_samples,
            seed=seed,
        )
