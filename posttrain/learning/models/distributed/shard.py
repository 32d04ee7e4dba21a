"""Split a model's parameters over the group, and put them back into the model that lent them."""

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard

from posttrain.learning.models.distributed.gather import whole
from posttrain.learning.models.distributed.group import ProcessGroup

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Result = TypeVar("Result")


class Sharded(nn.Module):
    """A model in shards: each process holds its part of every parameter, and of its gradient.

    Parameters are whole only inside a call, so all that computes with them goes through one.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self._is_inside = False

    def forward(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function with whole parameters, those of a layer in its turn.

        Args:
            function: Called as ``function(model, *arguments)``.
            *arguments: Handed on.

        Returns:
            What the function returns.

        """
        was, self._is_inside = self._is_inside, True
        try:
            return function(self.model, *arguments)
        finally:
            self._is_inside = was

    def ask(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Do what a call does, also within one, where parameters are whole already.

        Args:
            function: Called as ``function(model, *arguments)``.
            *arguments: Handed on.

        Returns:
            What the function returns.

        """
        if self._is_inside:
            return function(self.model, *arguments)
        found: Result = self(function, *arguments)
        return found


def shard(model: nn.Module, group: ProcessGroup, *, offload: bool = False) -> Sharded:
    """Make a twin of a model in shards, which takes its weights: `restore` gives them back.

    Gradients are summed over the processes, as each is given its share of one loss.

    Args:
        model: The whole model, equal in all processes; empty afterwards.
        group: The processes that share it.
        offload: True to keep shards, gradients and what is made like them in host memory, but for
            those of the layer that computes.

    Returns:
        The twin, of FSDP2's modules.

    """
    lent = [parameter.data for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.data = parameter.new_empty(0)
    # What is no parameter is in no shard: weights of 4 bits are whole in each process, and once.
    twin = copy.deepcopy(model, {id(buffer): buffer for buffer in model.buffers()})
    for parameter, values in zip(twin.parameters(), lent, strict=True):
        parameter.data = values
    lent.clear()
    sharded = Sharded(twin)
    pinned = group.device.type == "cuda"
    policy = CPUOffloadPolicy(pin_memory=pinned) if offload else OffloadPolicy()
    for module in [*_layers(twin), sharded]:
        fully_shard(module, mesh=group.mesh, reshard_after_forward=True, offload_policy=policy)
    for module in sharded.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            # Only NCCL can scale while it adds.
            module.set_force_sum_reduction_for_comms(True)
    return sharded


@torch.no_grad()
def restore(model: "PreTrainedModel", sharded: Sharded, group: ProcessGroup) -> None:
    """Give `model` of the main process the weights of its twin; every process takes part.

    Args:
        model: Written to in the main process, read nowhere.
        sharded: The twin, whose shards lie in all processes.
        group: The processes.

    """
    pairs = zip(model.parameters(), sharded.model.parameters(), strict=True)
    for parameter, mine in pairs:
        full = whole(mine.detach())
        if group.is_main:
            parameter.data = full.to(parameter.device, copy=True)


def take_back(model: "PreTrainedModel") -> None:
    """Free what `lend_whole` gave.

    Args:
        model: Read by nobody until its weights are lent again.

    """
    for parameter in model.parameters():
        parameter.data = parameter.new_empty(0)


@torch.no_grad()
def lend_whole(model: "PreTrainedModel", sharded: Sharded) -> None:
    """Give `model` of every process the weights of its twin, to read.

    Args:
        model: Written to; a parameter without elements gets memory of its own.
        sharded: The twin, whose shards lie in all processes.

    """
    for parameter, mine in zip(model.parameters(), sharded.model.parameters(), strict=True):
        full = whole(mine.detach())
        if parameter.numel():
            parameter.copy_(full)
        else:
            parameter.data = full.to(parameter.device, copy=True)


def _layers(model: nn.Module) -> list[nn.Module]:
    """The decoder layers: the members of the outermost list of modules."""
    lists = (module for module in model.modules() if isinstance(module, nn.ModuleList))
    return list(next(lists, ()))
