"""What a recipe says of vLLM."""

from typing import Literal

from pydantic import Field

from posttrain.stage.config import StageConfig


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
    """Kernels whose result for a row is the same whatever else is in the batch: slower, on GPUs
    alone (vLLM's own mode, of which it says that it is a beta)."""
    sleep: bool = False
    """Give the GPU's memory to the trainer while nothing is sampled."""
