"""Weights that are held in bfloat16 (2 bytes each), and the head, whose products stay float32."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from posttrain.learning.maths.reduce import widened

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SLICE_ELEMENTS = 1 << 22
"""Numbers of a head's weight that are float32 at a time: 16 MiB."""
_REWARD_HEAD = "score."


def narrow_weights(model: "PreTrainedModel") -> None:
    """Hold a model's weights in bfloat16 from now on, in place; twice is as once.

    A reward head stays as it is, as it is small and its outputs are compared. Buffers do, such as
    the frequencies of rotary positions. The output head computes in float32: logits that are
    rounded to 8 bits lie 0.125 apart at 16.

    Args:
        model: Of transformers.

    """
    for name, parameter in model.named_parameters():
        if not name.startswith(_REWARD_HEAD):
            parameter.data = parameter.data.to(torch.bfloat16)
    head = model.get_output_embeddings()
    if type(head) is nn.Linear:
        model.set_output_embeddings(_WideOutput.of(head))


def widen_weights(model: nn.Module) -> None:
    """Hold a model's weights in float32 at least from now on, in place."""
    for parameter in model.parameters():
        parameter.data = widened(parameter.data)


def head_product(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> Tensor:
    """Multiply hidden states with an output head, in float32 at least.

    Args:
        hidden_ND: States.
        weight_VD: Of the head; a narrow one is widened slice by slice, and never whole.
        bias_V: Of the head.

    Returns:
        Logits ``[N, V]``, without what some architectures do to them; see `final_logits`.

    """
    if weight_VD.element_size() >= 4:
        return F.linear(hidden_ND.to(weight_VD.dtype), weight_VD, bias_V)
    product: Any = _WideProduct.apply
    logits_NV: Tensor = product(widened(hidden_ND), weight_VD)
    return logits_NV if bias_V is None else logits_NV + widened(bias_V)


class _WideOutput(nn.Linear):
    """A linear layer whose products are float32."""

    @classmethod
    def of(cls, linear: nn.Linear) -> "_WideOutput":
        """The same layer, with the same parameters, so that tied ones stay tied."""
        made = cls(linear.in_features, linear.out_features, bias=False, device="meta")
        made.weight, made.bias = linear.weight, linear.bias
        return made.train(linear.training)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states of any leading shape."""
        with torch.autocast(hidden.device.type, enabled=False):
            logits_NV = head_product(hidden.reshape(-1, self.in_features), self.weight, self.bias)
        return logits_NV.view(*hidden.shape[:-1], -1)


class _WideProduct(torch.autograd.Function):
    """``hidden @ weight.T`` in float32, of a weight that is not."""

    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, weight_VD: Tensor) -> Tensor:
        ctx.save_for_backward(hidden_ND, weight_VD)
        logits_NV = hidden_ND.new_empty(len(hidden_ND), len(weight_VD))
        for source_CD, target_NC in zip(
            _slices(weight_VD), _slices_like(logits_NV, weight_VD), strict=True
        ):
            target_NC.copy_(hidden_ND @ source_CD.float().T)
        return logits_NV

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_NV: Tensor) -> tuple[Tensor | None, Tensor | None]:
        hidden_ND, weight_VD = ctx.saved_tensors
        hidden_gradient_ND = torch.zeros_like(hidden_ND) if ctx.needs_input_grad[0] else None
        weight_gradient_VD = torch.empty_like(weight_VD) if ctx.needs_input_grad[1] else None
        begin = 0
        for source_CD, part_NC in zip(
            _slices(weight_VD), _slices_like(upstream_NV, weight_VD), strict=True
        ):
            if hidden_gradient_ND is not None:
                hidden_gradient_ND += part_NC @ source_CD.float()
            if weight_gradient_VD is not None:
                weight_gradient_VD[begin : begin + len(source_CD)] = part_NC.T @ hidden_ND
            begin += len(source_CD)
        return hidden_gradient_ND, weight_gradient_VD


def _rows(weight_VD: Tensor) -> int:
    return max(1, _SLICE_ELEMENTS // weight_VD.shape[1])


def _slices(weight_VD: Tensor) -> tuple[Tensor, ...]:
    return torch.split(weight_VD, _rows(weight_VD))


def _slices_like(logits_NV: Tensor, weight_VD: Tensor) -> tuple[Tensor, ...]:
    return torch.split(logits_NV, _rows(weight_VD), dim=-1)
