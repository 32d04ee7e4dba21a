"""Split a model's parameters over the group, and put them back into the model that lent them."""

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, OffloadPolicy, fully_shard

from posttrain.learning.models.distributed.checkpoint import first_row
from posttrain.learning.models.distributed.gather import whole
from posttrain.learning.models.distributed.group import ProcessGroup, current_process_group
from posttrain.learning.models.unread import SHARED_BY, StoredWeight, stored_at

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor
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

    Of weights that are not read yet each process reads its own rows. Gradients are summed over the
    processes, as each is given its share of one loss.

    Args:
        model: The whole model, equal in all processes; empty afterwards.
        group: The processes that share it.
        offload: True to keep shards, gradients and what is made like them in host memory, but for
            those of the layer that computes.

    Returns:
        The twin, of FSDP2's modules.

    """
    stored = [stored_at(parameter) for parameter in model.parameters()]
    lent = [parameter.data for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.data = parameter.new_empty(0)
    # What is no parameter is in no shard: weights of 4 bits are whole in each process, and once.
    twin = copy.deepcopy(model, {id(buffer): buffer for buffer in model.buffers()})
    for parameter, values in zip(twin.parameters(), lent, strict=True):
        parameter.data = values
    lent.clear()
    _off_meta(model, group.device)
    return _in_shards(twin, stored, group, offload=offload)


def in_shards_for_now(model: nn.Module) -> Sharded:
    """Make a twin of a model that is not read yet, which stays as it is.

    Args:
        model: As it was loaded, with adapters or without.

    Returns:
        The twin, which is only read, and whose shards are gone with it.

    """
    stored = [stored_at(parameter) for parameter in model.parameters()]
    device = next(each.device for each in stored if each is not None)
    twin = copy.deepcopy(model, {id(buffer): buffer for buffer in model.buffers()})
    # It is only read, and numbers of two types in one group of FSDP2 could not be trained.
    twin.requires_grad_(requires_grad=False)
    return _in_shards(twin, stored, current_process_group(device), offload=False)


def _in_shards(
    twin: nn.Module, stored: Sequence[StoredWeight | None], group: ProcessGroup, *, offload: bool
) -> Sharded:
    """Put a model in shards, and read this process's rows of what was not read."""
    sharded = Sharded(twin)
    pinned = group.device.type == "cuda"
    policy = CPUOffloadPolicy(pin_memory=pinned) if offload else OffloadPolicy()
    for module in [*_layers(twin), *_heads_apart(twin), sharded]:
        fully_shard(module, mesh=group.mesh, reshard_after_forward=True, offload_policy=policy)
    if any(stored):
        _read(sharded, stored, group, device=torch.device("cpu") if offload else group.device)
    for module in sharded.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            # Only NCCL can scale while it adds.
            module.set_force_sum_reduction_for_comms(True)
    setattr(twin, SHARED_BY, group)
    return sharded


@torch.no_grad()
def _read(
    sharded: Sharded,
    stored: Sequence[StoredWeight | None],
    group: ProcessGroup,
    *,
    device: torch.device,
) -> None:
    """Give shards their memory, and the numbers of their rows."""
    places = _places(sharded)

    def made(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, device=device) if tensor.device.type == "meta" else tensor

    # As `to_empty` does it, but for what is there already.
    sharded._apply(made)  # type: ignore[no-untyped-call]
    for (first, name), *others in places:
        for module, other in others:
            # A tied weight was made once for each of its modules.
            module._parameters[other] = first._parameters[name]
    for ((module, name), *_), source in zip(places, stored, strict=True):
        if source is not None:
            weight = cast("DTensor", module._parameters[name])
            mine = weight.to_local()
            begin = first_row(weight, group)
            mine.copy_(source.rows(begin, begin + mine.shape[0]))


def _places(model: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    """Where each parameter stands: module and name, in more than one place if it is tied."""
    found: dict[int, list[tuple[nn.Module, str]]] = {}
    for _, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                found.setdefault(id(parameter), []).append((module, name))
    return list(found.values())


def _off_meta(model: nn.Module, device: torch.device) -> None:
    """Let a model that will be lent its weights have empty ones where they will lie."""
    for places in _places(model):
        module, name = places[0]
        parameter = module._parameters[name]
        assert parameter is not None
        empty = torch.empty(0, dtype=parameter.dtype, device=device)
        if not parameter.is_meta:
            # Also of adapters and heads, which were made in host memory.
            parameter.data = empty
            continue
        made = nn.Parameter(empty, requires_grad=parameter.requires_grad)
        for each, own in places:
            setattr(each, own, made)


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


def _heads_apart(model: nn.Module) -> list[nn.Module]:
    """Trained heads of another type than the rest: FSDP2 adds up gradients of one type at once."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    types = {parameter.dtype for parameter in trained}
    narrow = torch.bfloat16 in types and len(types) > 1
    return [child for name, child in model.named_children() if narrow and name == "score"]
