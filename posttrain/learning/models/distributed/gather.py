"""Whole tensors from shards, and shards from whole tensors that only the main process has."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from posttrain.learning.models.distributed.group import ProcessGroup


def whole(tensor: Tensor) -> Tensor:
    """The tensor without its shards; every process must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def placed(full: Tensor | None, like: Tensor, group: ProcessGroup) -> Tensor:
    """Lay out the main process's tensor as another one is; every process must call it.

    Args:
        full: The whole tensor in the main process; None in the others.
        like: Gives shape, dtype, and placement if it is in shards.
        group: The processes that take part.

    Returns:
        This process's shard, or a copy of the whole where `like` is whole.

    """
    source = full if group.is_main else torch.empty(like.shape, dtype=like.dtype)
    assert source is not None
    source = source.to(group.device, like.dtype)
    if isinstance(like, DTensor):
        return distribute_tensor(source, like.device_mesh, like.placements)
    source = source.contiguous().clone()
    dist.broadcast(source, src=0)
    return source


class GatheredTensors:
    """A part of a checkpoint that holds tensors by name, some of them in shards.

    Its state is what one process would have, so a checkpoint does not say how many wrote it. Only
    the main process holds it: elsewhere it is empty.
    """

    def __init__(self, part: Any, group: ProcessGroup) -> None:
        self._part = part
        self._group = group

    def state_dict(self) -> dict[str, Tensor]:
        """Whole tensors by name, in the main process."""
        state: dict[str, Tensor] = {}
        for name, tensor in self._part.state_dict().items():
            full = whole(tensor.detach())
            if self._group.is_main:
                state[name] = full.cpu()
        return state

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor] | None) -> None:
        """Spread the main process's tensors."""
        for name, mine in self._part.state_dict().items():
            mine.copy_(placed(state[name] if state is not None else None, mine, self._group))


class MainsOwn:
    """A part of a checkpoint that the main process alone keeps; the others forget theirs."""

    def __init__(self, part: Any, group: ProcessGroup) -> None:
        self._part = part
        self._group = group

    def state_dict(self) -> Any:
        """The part's own."""
        return self._part.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Take up what the main process has read, in the main process."""
        self._part.load_state_dict(state if self._group.is_main else {})


class SharedValues:
    """A part of a checkpoint that every process holds alike, as a curve."""

    def __init__(self, part: Any, group: ProcessGroup) -> None:
        self._part = part
        self._group = group

    def state_dict(self) -> Any:
        """The part's own."""
        return self._part.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """Take up what the main process has read."""
        self._part.load_state_dict(self._group.from_main(state))
