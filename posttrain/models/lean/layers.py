"""What surrounds attention in a layer, as functions with their backward passes written out.

A norm's weight is folded into the matrix that follows: scaling the matrix costs less than scaling
what it is multiplied by, forward and backward.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def projected(x_NC: Tensor, layer: Any, projections: Sequence[Any], rotation_N: Tensor) -> Tensor:
    """Some of queries, keys and values, side by side and rotated but for the values: ``[N, F]``."""
    norm, size = layer.input_layernorm, layer.self_attn.head_dim
    values = layer.self_attn.v_proj
    turned = sum(each.out_features for each in projections if each is not values)
    weight_FC = _joined([each.weight for each in projections], size, turned)
    bias_F = None
    if projections[0].bias is not None:
        bias_F = _joined([each.bias[:, None] for each in projections], size, turned)[:, 0]
    folded_FC = weight_FC * norm.weight
    return _projected(x_NC, folded_FC, bias_F, rotation_N, turned, norm.variance_epsilon)


def finish(x_NC: Tensor, attended_NF: Tensor, layer: Any) -> Tensor:
    """The output projection and the gated MLP, each added to the residual stream: ``[N, C]``."""
    norm, mlp = layer.post_attention_layernorm, layer.mlp
    weights = (
        layer.self_attn.o_proj.weight,
        mlp.gate_proj.weight * norm.weight,
        mlp.up_proj.weight * norm.weight,
        mlp.down_proj.weight,
    )
    return _finish(x_NC, attended_NF, norm.variance_epsilon, *weights)


def normed(x_NC: Tensor, norm: Any) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension."""
    scaled_NC: Tensor = _to_unit(x_NC, norm.variance_epsilon) * norm.weight
    return scaled_NC


class _Unit(torch.autograd.Function):
    """``x / sqrt(mean(x^2) + eps)``."""

    @staticmethod
    def forward(ctx: Any, x_NC: Tensor, eps: float) -> Tensor:
        unit_NC, inverse_N1 = _unit(x_NC, eps)
        ctx.save_for_backward(unit_NC, inverse_N1)
        return unit_NC

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NC: Tensor) -> tuple[Tensor, None]:
        return _to_x(gradient_NC, *ctx.saved_tensors), None


class _Projected(torch.autograd.Function):
    """``rotated(unit(x) W^T + b)``, of which the first `turned` values are rotated."""

    @staticmethod
    def forward(
        ctx: Any,
        x_NC: Tensor,
        weight_FC: Tensor,
        bias_F: Tensor | None,
        rotation_N: Tensor,
        turned: int,
        eps: float,
    ) -> Tensor:
        unit_NC, inverse_N1 = _unit(x_NC, eps)
        result_NF = F.linear(unit_NC, weight_FC, bias_F)
        _pairs(result_NF, turned, rotation_N).mul_(rotation_N)
        ctx.save_for_backward(unit_NC, inverse_N1, weight_FC, rotation_N)
        ctx.turned, ctx.biased = turned, bias_F is not None
        return result_NF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NF: Tensor) -> tuple[Tensor | None, ...]:
        unit_NC, inverse_N1, weight_FC, rotation_N = ctx.saved_tensors
        # Nobody else has it, as what is returned goes to one place: it may be turned back in place.
        gradient_NF = gradient_NF.contiguous()
        _pairs(gradient_NF, ctx.turned, rotation_N).mul_(rotation_N.conj())
        to_x_NC = _to_x(gradient_NF @ weight_FC, unit_NC, inverse_N1)
        to_weight_FC = _to_weight(gradient_NF, unit_NC)
        return to_x_NC, to_weight_FC, gradient_NF.sum(0) if ctx.biased else None, None, None, None


class _Finish(torch.autograd.Function):
    """``a = x + W_out y``, then ``a + W_down (silu(W_gate u) * W_up u)`` with ``u = unit(a)``."""

    @staticmethod
    def forward(
        ctx: Any, x_NC: Tensor, attended_NF: Tensor, eps: float, *weights: Tensor
    ) -> Tensor:
        out_CF, gate_IC, up_IC, down_CI = weights
        x_NC = torch.addmm(x_NC, attended_NF, out_CF.t())
        unit_NC, inverse_N1 = _unit(x_NC, eps)
        gate_NI, up_NI = F.linear(unit_NC, gate_IC), F.linear(unit_NC, up_IC)
        open_NI = F.silu(gate_NI)
        given = attended_NF, unit_NC, inverse_N1, gate_NI, up_NI, open_NI
        ctx.save_for_backward(*given, *weights)
        return torch.addmm(x_NC, open_NI * up_NI, down_CI.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NC: Tensor) -> tuple[Tensor | None, ...]:
        attended_NF, unit_NC, inverse_N1, gate_NI, up_NI, open_NI, *weights = ctx.saved_tensors
        out_CF, gate_IC, up_IC, down_CI = weights
        to_down_CI = _to_weight(gradient_NC, open_NI * up_NI)
        to_product_NI = gradient_NC @ down_CI
        to_up_NI = to_product_NI * open_NI
        to_gate_NI = torch.ops.aten.silu_backward(to_product_NI.mul_(up_NI), gate_NI)
        to_unit_NC = (to_gate_NI @ gate_IC).addmm_(to_up_NI, up_IC)
        to_x_NC = _to_x(to_unit_NC, unit_NC, inverse_N1).add_(gradient_NC)
        return (
            to_x_NC,
            to_x_NC @ out_CF,
            None,
            _to_weight(to_x_NC, attended_NF),
            _to_weight(to_gate_NI, unit_NC),
            _to_weight(to_up_NI, unit_NC),
            to_down_CI,
        )


def _unit(x_NC: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """``x / sqrt(mean(x^2) + eps)`` and what x was multiplied by: ``[N, C]``, ``[N, 1]``."""
    squares_N1 = torch.linalg.vector_norm(x_NC, dim=-1, keepdim=True).square_()
    inverse_N1 = squares_N1.div_(x_NC.shape[1]).add_(eps).rsqrt_()
    return x_NC * inverse_N1, inverse_N1


def _to_x(to_unit_NC: Tensor, unit_NC: Tensor, inverse_N1: Tensor) -> Tensor:
    """Gradient of x from that of ``unit(x)``."""
    along_N1 = (to_unit_NC * unit_NC).mean(-1, keepdim=True)
    return to_unit_NC.addcmul(unit_NC, along_N1, value=-1).mul_(inverse_N1)


def _to_weight(gradient_NO: Tensor, x_NI: Tensor) -> Tensor:
    """Gradient of the weight of ``x W^T``: the product that is quicker on a CPU."""
    if gradient_NO.shape[1] > x_NI.shape[1]:
        return (x_NI.t() @ gradient_NO).t()
    return gradient_NO.t() @ x_NI


def _pairs(values_NF: Tensor, turned: int, rotation_N: Tensor) -> Tensor:
    """The first `turned` values of each token as complex numbers, by head: ``[N, heads, D/2]``."""
    pairs = values_NF[:, :turned].view(len(values_NF), -1, rotation_N.shape[-1], 2)
    return torch.view_as_complex(pairs)


def _joined(parts: Sequence[Tensor], size: int, turned: int) -> Tensor:
    """One matrix, in which the dimensions of queries and keys that turn together adjoin.

    Llama pairs dimension i with i + D/2. With a pair adjacent, the rotation is one complex
    product, and q.k does not change when both are permuted alike.
    """
    joined = torch.cat(list(parts))
    halves = joined[:turned].view(turned // size, 2, size // 2, -1)
    return torch.cat([halves.transpose(1, 2).reshape(turned, -1), joined[turned:]])


_to_unit: Callable[[Tensor, float], Tensor] = _Unit.apply
_projected: Callable[[Tensor, Tensor, Tensor | None, Tensor, int, float], Tensor] = _Projected.apply
_finish: Callable[..., Tensor] = _Finish.apply
