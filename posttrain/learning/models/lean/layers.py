"""What surrounds attention in a layer, as functions with their backward passes written out."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from posttrain.learning.models.lean.rotation import adjoined


def projected(x_NC: Tensor, layer: Any, projections: Sequence[Any], rotation_N: Tensor) -> Tensor:
    """Some of queries, keys and values, side by side and rotated but for the values: ``[N, F]``."""
    norm, size = layer.input_layernorm, layer.self_attn.head_dim
    values = layer.self_attn.v_proj
    turned = sum(each.out_features for each in projections if each is not values)
    weight_FC = _joined([each.weight for each in projections], size, turned)
    bias_F = None
    if projections[0].bias is not None:
        bias_F = _joined([each.bias[:, None] for each in projections], size, turned)[:, 0]
    eps = norm.variance_epsilon
    return _projected(x_NC, rotation_N, turned, eps, norm.weight, weight_FC, bias_F)


def finish(x_NC: Tensor, attended_NF: Tensor, layer: Any) -> Tensor:
    """The output projection and the gated MLP, each added to the residual stream: ``[N, C]``."""
    norm, mlp = layer.post_attention_layernorm, layer.mlp
    parts = layer.self_attn.o_proj, norm, mlp.gate_proj, mlp.up_proj, mlp.down_proj
    return _finish(x_NC, attended_NF, norm.variance_epsilon, *(part.weight for part in parts))


def normed(x_NC: Tensor, norm: Any) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension."""
    return _normed(x_NC, norm.variance_epsilon, norm.weight)


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NC: Tensor, eps: float, norm_C: Tensor) -> Tensor:
        unit_NC, inverse_N1 = _unit(x_NC, eps)
        ctx.save_for_backward(unit_NC, inverse_N1, norm_C)
        return unit_NC * norm_C

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NC: Tensor) -> tuple[Tensor | None, ...]:
        to_x_NC, to_norm_C = _before_norm(gradient_NC, *ctx.saved_tensors)
        return to_x_NC, None, to_norm_C


class _Projected(torch.autograd.Function):
    """``rotated(normed(x) W^T + b)``, of which the first `turned` values are rotated."""

    @staticmethod
    def forward(
        ctx: Any,
        x_NC: Tensor,
        rotation_N: Tensor,
        turned: int,
        eps: float,
        *weights: Any,
    ) -> Tensor:
        norm_C, weight_FC, bias_F = weights
        unit_NC, inverse_N1 = _unit(x_NC, eps)
        result_NF = F.linear(unit_NC * norm_C, weight_FC, bias_F)
        _pairs(result_NF, turned, rotation_N).mul_(rotation_N)
        ctx.save_for_backward(unit_NC, inverse_N1, rotation_N, norm_C, weight_FC)
        ctx.turned, ctx.biased = turned, bias_F is not None
        return result_NF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NF: Tensor) -> tuple[Tensor | None, ...]:
        unit_NC, inverse_N1, rotation_N, norm_C, weight_FC = ctx.saved_tensors
        # Nobody else has it, as what is returned goes to one place: it may be turned back in place.
        gradient_NF = gradient_NF.contiguous()
        _pairs(gradient_NF, ctx.turned, rotation_N).mul_(rotation_N.conj())
        to_weight_FC = _to_weight(gradient_NF, unit_NC * norm_C)
        to_bias_F = gradient_NF.sum(0) if ctx.biased else None
        found = _before_norm(gradient_NF @ weight_FC, unit_NC, inverse_N1, norm_C)
        to_x_NC, to_norm_C = found
        return to_x_NC, None, None, None, to_norm_C, to_weight_FC, to_bias_F


class _Finish(torch.autograd.Function):
    """``a = x + W_out y``, then ``a + W_down (silu(W_gate n) * W_up n)`` with n the normed a."""

    @staticmethod
    def forward(
        ctx: Any, x_NC: Tensor, attended_NF: Tensor, eps: float, *weights: Tensor
    ) -> Tensor:
        out_CF, norm_C, gate_IC, up_IC, down_CI = weights
        x_NC = torch.addmm(x_NC, attended_NF, out_CF.t())
        unit_NC, inverse_N1 = _unit(x_NC, eps)
        normed_NC = unit_NC * norm_C
        gate_NI, up_NI = F.linear(normed_NC, gate_IC), F.linear(normed_NC, up_IC)
        open_NI = F.silu(gate_NI)
        given = attended_NF, unit_NC, inverse_N1, gate_NI, up_NI, open_NI
        ctx.save_for_backward(*given, *weights)
        return torch.addmm(x_NC, open_NI * up_NI, down_CI.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_NC: Tensor) -> tuple[Tensor | None, ...]:
        attended_NF, unit_NC, inverse_N1, gate_NI, up_NI, open_NI, *weights = ctx.saved_tensors
        out_CF, norm_C, gate_IC, up_IC, down_CI = weights
        to_down_CI = _to_weight(gradient_NC, open_NI * up_NI)
        to_product_NI = gradient_NC @ down_CI
        to_up_NI = to_product_NI * open_NI
        to_gate_NI = torch.ops.aten.silu_backward(to_product_NI.mul_(up_NI), gate_NI)
        normed_NC = unit_NC * norm_C
        to_gate_IC = _to_weight(to_gate_NI, normed_NC)
        to_up_IC = _to_weight(to_up_NI, normed_NC)
        to_normed_NC = (to_gate_NI @ gate_IC).addmm_(to_up_NI, up_IC)
        to_x_NC, to_norm_C = _before_norm(to_normed_NC, unit_NC, inverse_N1, norm_C)
        to_x_NC += gradient_NC
        to_attended_NF, to_out_CF = to_x_NC @ out_CF, _to_weight(to_x_NC, attended_NF)
        to_weights = to_out_CF, to_norm_C, to_gate_IC, to_up_IC, to_down_CI
        return to_x_NC, to_attended_NF, None, *to_weights


def _unit(x_NC: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """``x / sqrt(mean(x^2) + eps)`` and what x was multiplied by: ``[N, C]``, ``[N, 1]``."""
    squares_N1 = torch.linalg.vector_norm(x_NC, dim=-1, keepdim=True).square_()
    inverse_N1 = squares_N1.div_(x_NC.shape[1]).add_(eps).rsqrt_()
    return x_NC * inverse_N1, inverse_N1


def _before_norm(
    to_normed_NC: Tensor, unit_NC: Tensor, inverse_N1: Tensor, norm_C: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of x and of the norm's weight from that of ``unit(x) * weight``."""
    product_NC = to_normed_NC * unit_NC
    along_N1 = torch.mv(product_NC, norm_C)[:, None].div_(len(norm_C))
    to_x_NC = (to_normed_NC * norm_C).addcmul_(unit_NC, along_N1, value=-1).mul_(inverse_N1)
    return to_x_NC, product_NC.sum(0)


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
    """One matrix, whose first `turned` rows are those of queries and keys."""
    joined = torch.cat(list(parts))
    return torch.cat([adjoined(joined[:turned], size), joined[turned:]])


_normed: Callable[[Tensor, float, Tensor], Tensor] = _Normed.apply
_projected: Callable[..., Tensor] = _Projected.apply
_finish: Callable[..., Tensor] = _Finish.apply
