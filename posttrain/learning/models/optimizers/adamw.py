"""AdamW for every tensor, with moments in float32 or in blocks of 8 bits."""

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from posttrain.learning.models.optimizers.base import OptimizerPart, StateFormat, TrainedTensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

BETAS = (0.9, 0.95)


class AdamW(OptimizerPart):
    """Adam with decoupled weight decay, of every tensor.

    Source: arXiv 1711.05101, algorithm 2; states of 8 bits arXiv 2110.02861, section 2, by
    bitsandbytes.
    """

    STATES: ClassVar[frozenset[StateFormat]] = frozenset({"fp32", "8bit"})

    kind: Literal["adamw"] = "adamw"

    def build(
        self, tensors: TrainedTensors, *, weight_decay: float, states: StateFormat, sharded: bool
    ) -> "Mapping[str, torch.optim.Optimizer]":
        """Take torch's or bitsandbytes'; see `OptimizerPart.build`."""
        groups = [
            {"params": list(tensors.matrices), "weight_decay": weight_decay},
            {"params": list(tensors.others), "weight_decay": 0.0},
        ]
        name, of = _BUILDERS[states]
        return {name: of([group for group in groups if group["params"]])}


def fused_adamw(parameters: Any) -> "torch.optim.AdamW":
    """Torch's fused AdamW; each step sets the rate, and groups their weight decay.

    Args:
        parameters: Tensors, or groups of them.

    Returns:
        An optimizer of rate 0.

    """
    import torch

    return torch.optim.AdamW(parameters, lr=0.0, betas=BETAS, weight_decay=0.0, fused=True)


def _adamw_8bit(parameters: Any) -> "torch.optim.Optimizer":
    """Moments as 8-bit numbers in blocks of 256, those of tensors under 4096 numbers in float32."""
    from posttrain.stage.errors import UserError
    from posttrain.stage.extras import extra_line

    try:
        from bitsandbytes import optim
    except ModuleNotFoundError:
        raise UserError(
            "optimization.states 8bit needs bitsandbytes, which is not installed; run:"
            f" {extra_line('quantized')}"
        ) from None
    library: Any = optim
    made: torch.optim.Optimizer = library.AdamW8bit(
        parameters, lr=0.0, betas=BETAS, weight_decay=0.0
    )
    return made


_BUILDERS = {"fp32": ("adamw", fused_adamw), "8bit": ("adamw_8bit", _adamw_8bit)}
