"""Whole tensors from shards, and shards from whole tensors that only the main process has."""

from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor

from posttrain.learning.models.distributed.group import ProcessGroup


def whole(tensor: Tensor) -> Tensor:
    """The tensor without its shards; every process must ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


class GatheredTensors:
    """Tensors by name, some of them in shards, put together for the main process to keep."""

    def __init__(self, part: Any, group: ProcessGroup) -> None:
        self._part = part
        self._group = group

    def state_dict(self, *, keep_vars: bool = False) -> dict[str, Tensor]:  # noqa: ARG002 - a copy
        """Whole tensors by name, in the main process; see `torch.nn.Module.state_dict`."""
        state: dict[str, Tensor] = {}
        for name, tensor in self._part.state_dict().items():
            full = whole(tensor.detach())
            if self._group.is_main:
                state[name] = full.cpu()
        return state


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
