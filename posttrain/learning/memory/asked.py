"""A stage as it is asked about: its config, with settings tried otherwise, and its models."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from posttrain.learning.memory.learner import CPU, Learner, LoraShape, said
from posttrain.learning.memory.shapes import ModelShapes

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
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are tried, by dotted path; they stand before the config's."""

    def says(self, path: str, otherwise: Any) -> Any:
        """Read a setting by its dotted path; see `said`.

        Args:
            path: Dotted, as in a recipe.
            otherwise: What it is where the config has no such field, or an outer one is null.

        Returns:
            Its value.

        """
        return self.changes[path] if path in self.changes else said(self.config, path, otherwise)

    def changed(self, path: str, value: Any) -> "StageQuestion":
        """The same with one setting otherwise.

        Args:
            path: Dotted, as in a recipe.
            value: In place of what the config says.

        Returns:
            It, with that.

        """
        if path == PROCESSES_PATH:
            return replace(self, processes=value)
        return replace(self, changes={**self.changes, path: value})

    @property
    def learner(self) -> Learner:
        """How its model learns; where nothing does, the defaults say how it samples."""
        optimizer = self.says("optimization.optimizer", "adamw")
        return Learner(
            weights=self.says("learner.weights", "fp32"),
            precision=self.says("learner.precision", "fp32"),
            attention=self.says("learner.attention", None),
            packing=self.says("learner.packing", otherwise=False),
            recomputes=self.says("learner.activation_checkpointing", otherwise=False),
            lora=_lora(self.says("learner.lora", None)),
            averages=self.says("learner.ema_decay", None) is not None,
            # A part of a slot says its kind; a plain name is one.
            optimizer=getattr(optimizer, "kind", optimizer),
            states=self.says("optimization.states", "fp32"),
            rounding=self.says("optimization.rounding", None),
            in_backward=self.says("optimization.in_backward", otherwise=False),
            offload=self.says("optimization.offload", otherwise=False),
            device=self.device,
            processes=self.processes,
        )


def _lora(given: Any) -> LoraShape | None:
    """Adapters as a config has them, or as a setting that is tried is written."""
    if given is None or isinstance(given, LoraShape):
        return given
    return LoraShape(given.rank, tuple(given.targets))
