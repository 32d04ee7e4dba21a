"""Frozen weights held in fewer bytes than they compute with: widened where they are used.

How a weight is held and what a forward pass computes in are two things: layers here take and give
what the precision of the pass asks for, float32 or that of autocast, and widen their weight to it
on the way. Nothing of the wide weight outlives the call, so a pass needs one of them at a time;
the backward pass, which needs it again for the gradient of the input, makes it anew.
"""

import copy
from collections import defaultdict
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from posttrain.learning.maths.reduce import widened
from posttrain.learning.models.linear_layers import is_read_directly
from posttrain.learning.models.unread import carry

Model = TypeVar("Model", bound=nn.Module)


class HeldLinear(nn.Linear):
    """A frozen linear layer whose weight is held narrow; only its input gets a gradient."""

    def dense(self, dtype: torch.dtype) -> Tensor:
        """The weight ``[out, in]`` as numbers of a type."""
        return self.weight.detach().to(dtype)

    def release(self) -> None:
        """Become a plain linear layer in float32, of the values that were computed with."""
        dense = self.dense(torch.float32)
        self.drop()
        self.__class__ = nn.Linear  # type: ignore[assignment]
        self.weight = nn.Parameter(dense, requires_grad=False)

    def drop(self) -> None:
        """Give the held weight up."""
        del self.weight

    def forward(self, input: Tensor) -> Tensor:
        """Multiply in the precision of the pass: that of autocast, else that of the input."""
        kind = input.device.type
        autocast = torch.is_autocast_enabled(kind)
        dtype = torch.get_autocast_dtype(kind) if autocast else input.dtype
        output: Tensor = _Widened.apply(input.to(dtype), self)  # type: ignore[no-untyped-call]
        return output if self.bias is None else output + self.bias.to(dtype)


class HeldEmbedding(nn.Embedding):
    """A frozen embedding whose rows are widened to float32 when they are looked up."""

    def forward(self, input: Tensor) -> Tensor:
        """Look up and widen."""
        return widened(super().forward(input))

    def release(self) -> None:
        """Become a plain embedding in float32."""
        self.__class__ = nn.Embedding  # type: ignore[assignment]
        self.weight.data = widened(self.weight.data)


class _Widened(torch.autograd.Function):
    """``x W^T`` for a held W, which the graph does not keep wide."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: HeldLinear) -> Tensor:
        ctx.layer = layer
        return F.linear(x, layer.dense(x.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient @ ctx.layer.dense(gradient.dtype), None


_HELD: dict[type[nn.Module], type[HeldLinear | HeldEmbedding]] = {
    nn.Linear: HeldLinear,
    nn.Embedding: HeldEmbedding,
}
"""Layers that can hold a narrow weight; a subclass may do more with its own, and is none."""


def hold_as_stored(model: nn.Module) -> None:
    """Let a model that was loaded in the types of its file compute as one loaded in float32.

    Weights of linear layers and embeddings stay as narrow as they are; all others are widened.

    Args:
        model: Changed in place; nothing of it is trained afterwards but what is added.

    """
    holders = _holders(model)
    for parameter in model.parameters():
        if id(parameter) not in holders:
            parameter.data = widened(parameter.data)
    for modules in holders.values():
        for module in modules:
            if type(module) in _HELD and module.weight.dtype != torch.float32:
                module.__class__ = _HELD[type(module)]


def hold_in_bf16(model: nn.Module) -> None:
    """Hold the weights of linear layers and embeddings in bfloat16: 2 bytes a parameter.

    Norms, biases, and weights of layers that are neither stay in float32.

    Args:
        model: Changed in place; the weights are rounded once, to the nearest.

    """
    hold_as_stored(model)
    for modules in _holders(model).values():
        first = modules[0]
        # Assigned through the parameter, so that a head that is tied stays tied.
        first.weight.data = first.weight.data.to(torch.bfloat16)
        for module in modules:
            module.__class__ = _HELD.get(type(module), type(module))
    for parameter in model.parameters():
        if parameter.dtype == torch.float32:
            # A tensor that was read from a file keeps all of the file mapped.
            parameter.data = parameter.data.clone()


def release(model: nn.Module) -> None:
    """Make every held weight a plain one in float32 again, with the values that it computed with.

    Args:
        model: Changed in place.

    """
    for module in model.modules():
        if isinstance(module, HeldLinear | HeldEmbedding):
            module.release()


def plain_copy(model: Model) -> Model:
    """Copy a model to train the copy whole: what is held narrow is widened in it."""
    copied = copy.deepcopy(model)
    release(copied)
    carry(model, copied)
    # What was held could not be trained.
    return copied.requires_grad_(requires_grad=True)


def _holders(model: nn.Module) -> dict[int, list[Any]]:
    """The layers of each weight, by its id, where all that have it can hold it narrow.

    A reward head is trained and so is none of them, nor is what is read without being called.
    """
    owners: dict[int, list[Any]] = defaultdict(list)
    for name, module in model.named_modules():
        if name != "score" and not is_read_directly(model, name):
            for own in module.parameters(recurse=False):
                owners[id(own)].append(module)
    weights = {
        id(parameter): owners[id(parameter)]
        for name, parameter in model.named_parameters()
        if name.endswith("weight") and owners[id(parameter)]
    }
    able = {*_HELD, *_HELD.values()}
    return {
        key: modules for key, modules in weights.items() if all(type(m) in able for m in modules)
    }
