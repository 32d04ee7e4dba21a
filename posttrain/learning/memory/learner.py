"""What a stage's config says that memory depends on."""

from dataclasses import dataclass

CPU = "cpu"


@dataclass(frozen=True)
class LoraShape:
    """Adapters: their rank, and the ends of the names of the layers that have one."""

    rank: int
    targets: tuple[str, ...] = ()
    dora: bool = False
    """Whether the length of each row of a weight is trained too."""


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
    states_on_host: bool = False
    """`optimization.offload`."""
    shards_on_host: bool = False
    """`learner.offload`."""
    shares_tokens: bool = False
    """Context parallelism."""
    device: str = CPU
    processes: int = 1

    @property
    def holds_base(self) -> bool:
        """Whether frozen weights are held narrow, and widened where they are used."""
        return self.lora is not None and self.weights != "fp32"

    @property
    def reads_by_rows(self) -> bool:
        """Whether a process of several never has the whole model; see `LearnerConfig`."""
        return self.weights != "nf4" and not (self.lora is not None and self.lora.dora)

    @property
    def computes_in(self) -> str:
        """Numbers of the forward pass, as a key of `activations.NUMBER_WIDTHS`."""
        if self.weights == "bf16" and self.lora is None:
            return "bf16"
        return "autocast" if self.precision == "bf16" else "fp32"
