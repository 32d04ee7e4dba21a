"""Which engine a stage samples with: what a recipe says about it, and how it is opened."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from posttrain.learning.models.attention import Attention, set_attention
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError
from posttrain.stage.resources import RayResources

if TYPE_CHECKING:
    from posttrain.learning.models.load import Policy
    from posttrain.learning.rollouts.engines.base import Sampler


class TorchEngine(StageConfig):
    """The decode loop of this package, around the very module that is trained."""

    name: Literal["torch"] = "torch"
    attention: Attention | None = None
    """Kernel of the attention; where the policy is being trained, this is the learner's too."""
    compile: bool = False
    """Compile the model's forward pass: minutes at first; small Llamas have no use for it."""


class VllmEngine(StageConfig):
    """vLLM in the stage's own process; the settings decide how much fits and how it rounds."""

    PACKAGES = frozenset({"vllm"})
    name: Literal["vllm"] = "vllm"
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
    sleep: bool = False
    """Give the GPU's memory to the trainer while nothing is sampled."""


def _by_name(value: Any) -> Any:
    """`engine: vllm` says as much as `engine: {name: vllm}`."""
    return {"name": value} if isinstance(value, str) else value


EngineConfig = Annotated[
    TorchEngine | VllmEngine, BeforeValidator(_by_name), Field(discriminator="name")
]
"""What a stage's `engine` field holds; as it is part of the stage's parameters, its key sees it."""


@contextmanager
def open_sampler(
    engine: TorchEngine | VllmEngine,
    policy: "Policy",
    *,
    batch_size: int = 512,
    ray: RayResources | None = None,
) -> "Iterator[Sampler]":
    """The engine on this policy, for as long as the context lasts; then its memory is free again.

    `batch_size` is the torch engine's. With `ray`, actors on a cluster have an engine each. Raises
    `UserError` where the engine is not installed, or cannot take the policy.
    """
    if ray is not None:
        from posttrain.learning.rollouts.engines.ray_sampler import open_actors

        with open_actors(engine, policy, ray, batch_size=ray.rows or batch_size) as sampler:
            yield sampler
        return
    with _ENGINES[engine.name](engine, policy, batch_size) as sampler:
        yield sampler


@contextmanager
def _torch(engine: TorchEngine, policy: "Policy", batch_size: int) -> "Iterator[Sampler]":
    from posttrain.learning.rollouts.engines.torch_engine import TorchSampler

    if engine.attention:
        set_attention(policy.model, engine.attention)
    if engine.compile:
        _check_compiler()
    yield TorchSampler(
        policy.model, policy.tokenizer, batch_size=batch_size, compiled=engine.compile
    )


def _check_compiler() -> None:
    names = (os.environ.get("CXX"), "g++", "clang++", "c++")
    if not any(name and shutil.which(name) for name in names):
        raise UserError(
            "engine.compile needs a C++ compiler, and there is none; install g++, or leave it out"
        )


@contextmanager
def _vllm(engine: VllmEngine, policy: "Policy", _: int) -> "Iterator[Sampler]":
    from posttrain.learning.rollouts.engines.vllm_engine import VllmSampler

    sampler = VllmSampler(policy.model, policy.tokenizer, engine)
    try:
        yield sampler
    finally:
        sampler.close()


_ENGINES: Mapping[str, Callable[..., "AbstractContextManager[Sampler]"]] = {
    "torch": _torch,
    "vllm": _vllm,
}
