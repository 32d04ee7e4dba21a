"""A stage as it is asked about: its config, with settings tried otherwise, and its models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from posttrain.learning.memory.learner import CPU, Learner, LoraShape
from posttrain.learning.memory.shapes import ModelShapes
from posttrain.stage.config import StageConfig

PROCESSES_PATH = "resources.processes"


@dataclass(frozen=True)
class StageQuestion:
    """What the accounting of a stage goes by."""

    config: Any
    """Of the stage."""
    policy: ModelShapes
    models: Mapping[str, ModelShapes] = field(default_factory=dict)
    """The other models that the stage loads, by port."""
    device: str = CPU
    processes: int = 1
    prompt_tokens: int = 512
    """Of the longest prompt before an answer."""
    capacity: int = 0
    """Bytes of the device; what vLLM takes a share of."""

    def says(self, path: str) -> Any:
        """Read a setting.

        Args:
            path: Dotted, as in a recipe.

        Returns:
            Its value.

        """
        return reduce(getattr, path.split("."), self.config)

    def has(self, path: str) -> bool:
        """Tell whether the config has a setting: not every stage trains, or samples.

        Args:
            path: Dotted, as in a recipe.

        Returns:
            Whether it has.

        """
        *outer, name = path.split(".")
        config = self.config
        for each in outer:
            config = getattr(config, each, None)
        return isinstance(config, StageConfig) and name in type(config).model_fields

    def changed(self, path: str, value: Any) -> "StageQuestion":
        """The same with one setting otherwise.

        Args:
            path: Dotted, as in a recipe.
            value: In place of what the config says.

        Returns:
            It, with that; pydantic's error where the config does not take it.

        """
        if path == PROCESSES_PATH:
            return replace(self, processes=value)
        return replace(self, config=_changed(self.config, path.split("."), value))

    @property
    def learner(self) -> Learner:
        """How its model learns; where nothing does, the defaults say how it samples."""
        if not self.has("learner"):
            return Learner(device=self.device)
        learner, optimization = self.config.learner, self.config.optimization
        lora = learner.lora
        return Learner(
            weights=learner.weights,
            precision=learner.precision,
            attention=learner.attention,
            packing=learner.packing,
            recomputes=learner.activation_checkpointing,
            lora=lora and LoraShape(lora.rank, tuple(lora.targets), lora.dora),
            averages=learner.ema_decay is not None,
            optimizer=optimization.optimizer.kind,
            states=optimization.states,
            rounding=optimization.rounding,
            in_backward=optimization.in_backward,
            states_on_host=optimization.offload,
            shards_on_host=learner.offload and self.processes > 1,
            shares_tokens=learner.context_parallel and self.processes > 1,
            device=self.device,
            processes=self.processes,
        )


def _changed(config: StageConfig, path: Sequence[str], value: Any) -> StageConfig:
    """A config with one field otherwise, which its own rules are asked about."""
    name, *rest = path
    inner = _changed(getattr(config, name), rest, value) if rest else value
    return type(config).model_validate({**dict(config), name: inner})
