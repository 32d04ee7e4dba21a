"""An engine of its own in another process, and the weights that it is sent."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import Prompt, Sample, SamplingParams
from posttrain.learning.rollouts.engines.engine import Engine

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Weights = Mapping[str, npt.NDArray[np.uint8]]
"""The bytes of every tensor by name, as a store can hold them without a copy."""


class RolloutWorker:
    """Draws samples from its copy of a policy; a `cluster.Worker` whose tools are weights."""

    def __init__(self, engine: Engine, policy: Policy, device: str, batch_size: int) -> None:
        self._model = policy.model.to(device)
        self._open = ExitStack()
        self._sampler = self._open.enter_context(
            engine.open(Policy(self._model, policy.tokenizer), batch_size=batch_size)
        )

    def equip(self, version: int, tools: Weights) -> None:
        """Take over weights; later samples are drawn from them and carry this version."""
        write_weights(self._model, tools)
        self._sampler.update(version)

    def do(self, piece: tuple[Sequence[Prompt], SamplingParams]) -> list[Sample]:
        """The samples of some prompts, in their order."""
        prompts, params = piece
        return self._sampler.sample(prompts, params)


@torch.no_grad()
def read_weights(model: "PreTrainedModel") -> Weights:
    """Every tensor of the model's state once, also where two names share it."""
    weights: dict[str, npt.NDArray[np.uint8]] = {}
    seen: set[tuple[int, int]] = set()
    for name, tensor in model.state_dict().items():
        place = (tensor.data_ptr(), tensor.numel())
        if tensor.numel() and place not in seen:
            seen.add(place)
            weights[name] = tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return weights


@torch.no_grad()
def write_weights(model: "PreTrainedModel", weights: Weights) -> None:
    """Put weights of the same model in their places; `ValueError` for one that does not fit."""
    state = model.state_dict()
    for name, stored in weights.items():
        own = state[name]
        if stored.nbytes != own.numel() * own.element_size():
            raise ValueError(f"{name} has {stored.nbytes} bytes, but not as many here")
        # A copy, as what lies in the store must not be written to.
        own.copy_(torch.from_numpy(stored.copy()).view(own.dtype).reshape(own.shape))
