"""What a recipe says of vLLM."""

from typing import Literal

from pydantic import Field, JsonValue, field_validator

from posttrain.learning.rollouts.engines.vllm_options import refused_option
from posttrain.stage.config import Capability, StageConfig

_INVARIANT_SINCE = (9, 0)
"""Compute capability from which `batch_invariant` leaves the trainer its gradients. vLLM 0.32 has
kernels for 8.0 too, but puts them in the place of torch's `linear` and `matmul` in the whole
process, and they have no backward pass (`vllm.model_executor.determinism.batch_invariant`)."""


class VllmSettings(StageConfig):
    """How much of vLLM fits, and how it rounds."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of weights, activations and cache; `auto` is that of the policy."""
    max_num_seqs: int = Field(256, ge=1)
    """Sequences that are decoded together."""
    gpu_memory_utilization: float = Field(0.4, gt=0.0, le=1.0)
    """Share of a GPU's memory for weights and cache; the trainer needs the rest."""
    kv_cache_gib: float | None = Field(None, gt=0.0)
    """Memory for keys and values; null takes what the share leaves on a GPU, and 1 GiB on a CPU."""
    enforce_eager: bool = False
    """Do without CUDA graphs: a slower decode, a start that is minutes shorter. So on every CPU."""
    # Left out of what is keyed while it is off, so that runs from before it stay what they are.
    batch_invariant: bool = Field(default=False, exclude_if=lambda on: not on)
    """Kernels whose result for a row is the same whatever else is in the batch: slower, on GPUs of
    compute capability 9.0 alone (vLLM's own mode, of which it says that it is a beta)."""
    sleep: bool = False
    """Give the GPU's memory to the trainer while nothing is sampled."""
    options: dict[str, JsonValue] = Field(default_factory=dict, exclude_if=lambda given: not given)
    """Anything else that vLLM's engine takes, under vLLM's own names, such as `max_model_len` or
    `quantization`; handed through as it stands, but for what would draw other tokens."""

    @field_validator("options")
    @classmethod
    def _draws_the_same(cls, options: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if refused := refused_option(options):
            raise ValueError(refused)
        return options

    def beyond_device(self, capability: Capability) -> str | None:
        """Refuse what takes a GPU, or a newer one; see `StageConfig.beyond_device`."""
        if not (self.sleep or self.batch_invariant):
            return None
        found = capability()
        if found is None:
            asked = (
                "engine.batch_invariant takes kernels for GPUs"
                if self.batch_invariant
                else "engine.sleep frees the memory of a GPU"
            )
            return f"{asked}, and this policy is on the CPU; set it to false"
        if self.batch_invariant and found < _INVARIANT_SINCE:
            return (
                "engine.batch_invariant takes a GPU of compute capability"
                f" {_dotted(_INVARIANT_SINCE)}, and this one has {_dotted(found)}, for which vLLM"
                " replaces torch's own products by kernels without a gradient; set it to false"
            )
        return None


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
