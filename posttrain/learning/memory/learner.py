"""What a stage's config says that memory depends on."""

from dataclasses import dataclass
from typing import Any

CPU = "cpu"


def said(config: Any, path: str, otherwise: Any) -> Any:
    """Read a field of a config by its dotted path.

    Args:
        config: Of a stage.
        path: Such as ``learner.lora.rank``.
        otherwise: What it is where the config has no such field, or an outer one is null.

    Returns:
        Its value.

    """
    for name in path.split("."):
        config = getattr(config, name, None)
        if config is None:
            return otherwise
    return config


@dataclass(frozen=True)
class LoraShape:
    """Adapters: their rank, and the ends of the names of the layers that have one."""

    rank: int
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Learner:
    """How a model learns, as far as bytes go; defaults are those of `LearnerConfig`."""

    weights: str = "fp32"
    precision: str = "fp32"
    attention: str | None = None
    packing: bool = False
    recomputes: bool = False
    """Activation checkpointing."""
    lora: LoraShape | None = None
    averages: bool = False
    """A moving average of the trained weights."""
    optimizer: str = "adamw"
    states: str = "fp32"
    rounding: str | None = None
    in_backward: bool = False
    offload: bool = False
    device: str = CPU
    processes: int = 1

    @property
    def computes_in(self) -> str:
        """Numbers of the forward pass, as a key of `activations.NUMBER_WIDTHS`."""
        if self.weights == "bf16" and self.lora is None:
            return "bf16"
        return "autocast" if self.precision == "bf16" else "fp32"
