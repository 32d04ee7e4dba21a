"""Optimizers on shards, with the state of one process in their checkpoints."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from posttrain.learning.models.distributed.checkpoint import read_like
from posttrain.learning.models.distributed.gather import whole
from posttrain.learning.models.distributed.group import ProcessGroup
from posttrain.learning.models.muon import BatchedMuon
from posttrain.learning.models.optim import Optimizer
from posttrain.learning.models.stored_tensors import StoredTensor


class ShardedOptimizer(Optimizer):
    """As `Optimizer`, on parameters in shards; the norm is that of the whole gradient."""

    def __init__(self, inner: Optimizer, group: ProcessGroup) -> None:
        super().__init__(inner.parameters, inner.parts)
        self._group = group

    def whole(self, norm: Tensor) -> Tensor:
        """The norm over the shards of all processes."""
        return whole(norm)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the rows of this process from a state that is on disk."""
        for name, part in self.parts.items():
            given = state[name]
            parameters = [p for group in part.param_groups for p in group["params"]]
            values = {
                index: {k: self._read(value, parameters[index]) for k, value in found.items()}
                for index, found in given["state"].items()
            }
            part.load_state_dict({**given, "state": values})

    def _read(self, value: Any, parameter: Tensor) -> Any:
        """One value of a parameter's state: a tensor of its shape in its shards, all else whole."""
        if not isinstance(value, StoredTensor):
            return value
        shards = value.shape == tuple(parameter.shape)
        like = parameter.detach() if shards else torch.empty(0, device=self._group.device)
        return read_like(value, like, self._group)


class ShardedMuon(BatchedMuon):
    """`BatchedMuon` on shards: every process orthogonalises whole updates and keeps its rows."""

    def whole(self, update: Tensor) -> Tensor:
        """The update's whole matrix."""
        return whole(update)

    def move(self, parameter: Tensor, update: Tensor, rate: float) -> None:
        """Take this process's rows of a step against `update`; see `BatchedMuon.move`."""
        if isinstance(parameter, DTensor):
            # Every process has the whole, so nothing needs sending.
            update = distribute_tensor(
                update, parameter.device_mesh, parameter.placements, src_data_rank=None
            )
        super().move(parameter, update, rate)
