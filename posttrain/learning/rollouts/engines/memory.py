"""Buffers that outlive a batch, so that the next one does not pay for fresh pages again."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

LARGEST = 256 * 2**20
"""Bytes of one buffer up to which it is kept; a larger one goes back once its batch is done."""


class Memory:
    """Named buffers of a sampler on a CPU. A GPU's allocator keeps its memory by itself.

    The operating system hands out large blocks page by page, each cleared at its first touch: for
    a small model that costs as much as reading the prompts.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, shape: Sequence[int], *, like: Tensor) -> Tensor:
        """Memory of `shape` and of the type of `like`, with what its last user left there."""
        size = math.prod(shape)
        if like.device.type != "cpu" or size * like.element_size() > LARGEST:
            return like.new_empty(shape)
        kept = self._buffers.get(name)
        if kept is None or kept.numel() < size or kept.dtype != like.dtype:
            kept = self._buffers[name] = torch.empty(size, dtype=like.dtype)
        return kept[:size].view(shape)
