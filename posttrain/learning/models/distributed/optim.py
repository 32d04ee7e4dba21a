"""Optimizers on shards, with the state of one process in their checkpoints."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from posttrain.learning.models.distributed.gather import placed, whole
from posttrain.learning.models.distributed.group import ProcessGroup
from posttrain.learning.models.muon import BatchedMuon
from posttrain.learning.models.optim import Optimizer


class ShardedOptimizer(Optimizer):
    """As `Optimizer`, on parameters in shards; the norm is that of the whole gradient."""

    def __init__(self, inner: Optimizer, group: ProcessGroup) -> None:
        super().__init__(inner.parameters, inner.parts)
        self._group = group

    def whole(self, norm: Tensor) -> Tensor:
        """The norm over the shards of all processes."""
        return whole(norm)

    def state_dict(self) -> dict[str, Any]:
        """The state as one process has it, in the main process; what the others give is nothing."""
        states: dict[str, Any] = {}
        for name, part in self.parts.items():
            state = part.state_dict()
            values = {
                index: {key: self._kept(value) for key, value in found.items()}
                for index, found in state["state"].items()
            }
            states[name] = {**state, "state": values}
        return states

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Spread the state that the main process has read."""
        for name, part in self.parts.items():
            given = state[name] if state is not None else None
            parameters = [p for group in part.param_groups for p in group["params"]]
            outline = self._group.from_main(None if given is None else _outline(given))
            values = {
                index: self._spread(found, given and given["state"][index], parameters[index])
                for index, found in outline["state"].items()
            }
            part.load_state_dict({**outline, "state": values})

    def _kept(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        full = whole(value)
        return full.cpu() if self._group.is_main else None

    def _spread(
        self, outline: Mapping[str, Any], full: Mapping[str, Any] | None, parameter: Tensor
    ) -> dict[str, Any]:
        """One parameter's state: tensors of its shape in its shards, all else as it is."""
        spread: dict[str, Any] = {}
        for key, value in outline.items():
            if isinstance(value, Tensor):
                shards = value.shape == parameter.shape
                like = parameter.detach().to(value.dtype) if shards else value
                value = placed(full[key] if full else None, like, self._group)
            spread[key] = value
        return spread


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


def _outline(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state with tensors that have a shape and a type, and no values."""
    values = {
        index: {key: _without_values(value) for key, value in found.items()}
        for index, found in state["state"].items()
    }
    return {**state, "state": values}


def _without_values(value: Any) -> Any:
    return torch.empty_like(value, device="meta") if isinstance(value, Tensor) else value
