"""How a stage samples a policy's answers to problems: the parameters that such stages share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.rewards.truncated import Truncated
from posttrain.learning.rollouts.engines.config import EngineConfig
from posttrain.learning.rollouts.engines.kinds.torch import TorchEngine
from posttrain.stage.config import StageConfig

if TYPE_CHECKING:
    from posttrain.learning.rollouts.engines.base import SamplingParams

MaxTokens = Annotated[int, Field(ge=1)] | Literal["auto"]
"""Most tokens of an answer; `auto` goes by those that the policy was taught: see `limits`."""


class SamplingConfig(StageConfig):
    """How often, how long and by which engine answers are sampled."""

    _OF_GREEDY: ClassVar[Mapping[str, Any]] = {"num_samples": 1}
    """What is at its default otherwise where the temperature is 0."""

    num_samples: int = Field(default=8, ge=1)
    """Samples per problem."""
    temperature: float = Field(default=1.0, ge=0.0)
    """Sampling temperature; at 1 answers come with the policy's own probabilities, at 0 the
    likeliest token is taken each time (greedy), and there is one sample per problem."""
    max_tokens: MaxTokens = "auto"
    """Longest completion, in tokens; `auto` goes by the answers that the policy was taught."""
    truncated: Truncated = "counts"
    """What becomes of an answer cut off at max_tokens: it counts as it stands (`counts`, and
    `masked` where nothing is learned), fails whatever it states (`fails`), or is not judged
    (`dropped`); as in rl.reward."""
    batch_size: int = Field(default=512, ge=1)
    """Sequences that are decoded together."""
    engine: EngineConfig = TorchEngine()
    """What samples: `torch`, or `vllm` where it is installed; a mapping also holds its settings."""

    @model_validator(mode="before")
    @classmethod
    def _greedy_is_once(cls, values: Any) -> Any:
        """Take one sample where nothing is drawn, unless somebody says how many."""
        if isinstance(values, dict) and values.get("temperature") == 0:
            return {**cls._OF_GREEDY, **values}
        return values

    @model_validator(mode="after")
    def _greedy_is_the_same_again(self) -> Self:
        if self.temperature == 0 and self.num_samples > 1:
            raise ValueError(
                f"at temperature 0 all {self.num_samples} samples of a problem would be the same;"
                " leave num_samples out, or raise the temperature"
            )
        return self

    def params(self, seed: int, *, max_tokens: int) -> "SamplingParams":
        """Return what an engine is told.

        Args:
            seed: Of the samples.
            max_tokens: As `tokens_for` chose it for the policy.

        """
        from posttrain.learning.rollouts.engines.base import SamplingParams

        return SamplingParams(
            max_tokens=max_tokens,
            temperature=self.temperature,
            num_samples=self.num_samples,
            seed=seed,
        )
