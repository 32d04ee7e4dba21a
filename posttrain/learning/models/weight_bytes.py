"""The weights of a model as bytes, as they go to another process."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Weights = Mapping[str, npt.NDArray[np.uint8]]
"""The bytes of every tensor by name, as a store can hold them without a copy."""


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
    """Put weights of the same model in their places.

    Args:
        model: Changed in place.
        weights: Bytes by name in the model's state.

    Raises:
        ValueError: One has another number of bytes than the model's own.

    """
    state = model.state_dict()
    for name, stored in weights.items():
        own = state[name]
        if stored.nbytes != own.numel() * own.element_size():
            raise ValueError(f"{name} has {stored.nbytes} bytes, but not as many here")
        # A copy, as what lies in the store must not be written to.
        own.copy_(torch.from_numpy(stored.copy()).view(own.dtype).reshape(own.shape))
