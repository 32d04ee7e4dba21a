"""Linear layers whose frozen weight is held in 4 bits, by bitsandbytes."""

import logging
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from posttrain.learning.models.held_weights import HeldLinear, hold_as_stored
from posttrain.learning.models.linear_layers import linear_layers
from posttrain.stage.absent import absent
from posttrain.stage.errors import UserError
from posttrain.stage.extras import extra_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_BLOCK, _OUTER = 64, 256
"""Weights that share a scale, and scales that share one in turn, as in the paper, section 3."""


class Nf4Linear(HeldLinear):
    """A frozen linear layer of NF4 weights with doubly quantized scales; 4.13 bits a weight.

    Sampler and trainer read the same numbers: a weight is always dequantized and multiplied as one
    that was never quantized, and no kernel fuses the two with a rounding of its own.

    Source: QLoRA, arXiv 2305.14314, section 3 and equations 5 and 6.
    """

    packed: Tensor
    scales: Tensor
    outer_scales: Tensor
    offset: Tensor

    @classmethod
    def take(cls, layer: nn.Linear) -> None:
        """Make a linear layer one of NF4, in place.

        Args:
            layer: Its weight is rounded to the nearest of the 16 levels of its block.

        """
        functional = import_bitsandbytes().functional
        weight = layer.weight.detach().float().contiguous()
        packed, state = functional.quantize_4bit(
            weight, blocksize=_BLOCK, compress_statistics=True, quant_type="nf4"
        )
        del layer.weight
        layer.__class__ = cls
        for name, tensor in (
            ("packed", packed),
            ("scales", state.absmax),
            ("outer_scales", state.state2.absmax),
            ("offset", state.offset),
        ):
            layer.register_buffer(name, tensor)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The weight ``[out, in]`` in float32, made anew at every call."""
        return self.dense(torch.float32)

    def dense(self, dtype: torch.dtype) -> Tensor:
        """Dequantize; see `HeldLinear.dense`."""
        functional = import_bitsandbytes().functional
        device = self.packed.device
        outer = functional.QuantState(
            absmax=self.outer_scales,
            code=_levels(device)[1],
            blocksize=_OUTER,
            dtype=torch.float32,
        )
        state = functional.QuantState(
            absmax=self.scales,
            shape=torch.Size((self.out_features, self.in_features)),
            code=_levels(device)[0],
            blocksize=_BLOCK,
            quant_type="nf4",
            dtype=torch.float32,
            offset=self.offset,
            state2=outer,
        )
        dense: Tensor = functional.dequantize_4bit(self.packed, state)
        return dense.to(dtype)

    def drop(self) -> None:
        """Give the buffers up; see `HeldLinear.drop`."""
        for name in ("packed", "scales", "outer_scales", "offset"):
            delattr(self, name)


@cache
def _levels(device: torch.device) -> tuple[Tensor, Tensor]:
    """The 16 levels of a weight, and the 256 of its scale."""
    functional = import_bitsandbytes().functional
    scales = functional.create_dynamic_map().to(device)
    return functional.get_4bit_type("nf4", device=device), scales


def hold_in_nf4(model: "PreTrainedModel") -> None:
    """Hold the linear layers of a model's stack in 4 bits; head and embeddings stay as stored.

    Args:
        model: Changed in place.

    Raises:
        UserError: bitsandbytes is not installed, or no layer can be held so.

    """
    import_bitsandbytes()
    hold_as_stored(model)
    layers = _untied(model)
    if not layers:
        raise UserError(
            f"learner.weights nf4 is for linear layers, and {type(model).__name__} has none of"
            " torch's own; set it to bf16 or fp32"
        )
    for layer in layers:
        Nf4Linear.take(layer)
    for parameter in model.parameters():
        # A tensor that was read from a file keeps all of the file mapped.
        parameter.data = parameter.data.clone()


def _untied(model: "PreTrainedModel") -> list[nn.Linear]:
    """The linear layers that are torch's own and share their weight with no other."""
    owners = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    return [
        layer
        for layer in linear_layers(model).values()
        if isinstance(layer, nn.Linear)
        and type(layer) in (nn.Linear, HeldLinear)
        and owners[id(layer.weight)] == 1
    ]


def import_bitsandbytes() -> Any:
    """The package, without its looking for kernels on a hub; `UserError` without it."""
    # On processors with AVX-512 in bfloat16 it asks a hub for a kernel that nothing here calls, and
    # warns where the package that would do so is missing.
    logger = logging.getLogger("bitsandbytes.backends.cpu.ops")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with absent("kernels"):
            import bitsandbytes
    except ModuleNotFoundError:
        raise UserError(
            "learner.weights nf4 needs bitsandbytes, which is not installed; run:"
            f" {extra_line('quantized')}"
        ) from None
    finally:
        logger.setLevel(level)
    return bitsandbytes
