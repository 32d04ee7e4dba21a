"""Exact entropy of the next-token distribution, a slice of the vocabulary at a time.

Forward and backward hold ``N x chunk_size`` numbers beside their inputs, not ``N x V``. The
backward pass takes ``dH / dz = -p (log p + H)`` from the logits again instead of keeping the
softmax.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from posttrain.learning.maths.reduce import widened


def _log_sum_and_entropy(chunks: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Log-sum-exp and entropy of rows whose logits come in slices, in one pass.

    With the running maximum m, ``total = sum e^(z - m)`` and ``moment = sum e^(z - m) (z - m)``:
    then the log-sum-exp is ``m + log total`` and the entropy ``log total - moment / total``.
    """
    peak_N = total_N = moment_N = torch.zeros(())
    for index, chunk_NC in enumerate(chunks):
        logits_NC = widened(chunk_NC)
        top_N = logits_NC.amax(-1).clamp(min=torch.finfo(logits_NC.dtype).min)
        if index == 0:
            peak_N, total_N, moment_N = top_N, torch.zeros_like(top_N), torch.zeros_like(top_N)
        higher_N = torch.maximum(peak_N, top_N)
        decay_N = (peak_N - higher_N).exp()
        shifted_NC = logits_NC - higher_N.unsqueeze(-1)
        odds_NC = shifted_NC.exp()
        moment_N = decay_N * (moment_N + total_N * (peak_N - higher_N))
        # A forbidden token has logit -infinity and odds 0; their product must be 0, not NaN.
        moment_N = moment_N + torch.where(odds_NC > 0, odds_NC * shifted_NC, 0.0).sum(-1)
        total_N = decay_N * total_N + odds_NC.sum(-1)
        peak_N = higher_N
    return peak_N + total_N.log(), total_N.log() - moment_N / total_N


def _logit_gradient(
    logits_NC: Tensor, log_sum_N: Tensor, entropy_N: Tensor, upstream_N: Tensor
) -> Tensor:
    logprobs_NC = widened(logits_NC) - log_sum_N.unsqueeze(-1)
    probabilities_NC = logprobs_NC.exp()
    surprise_NC = torch.where(probabilities_NC > 0, logprobs_NC + entropy_N.unsqueeze(-1), 0.0)
    return -upstream_N.unsqueeze(-1) * probabilities_NC * surprise_NC


class _EntropyOfLogits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits_NV: Tensor, chunk_size: int) -> Tensor:
        log_sum_N, entropy_N = _log_sum_and_entropy(torch.split(logits_NV, chunk_size, -1))
        ctx.save_for_backward(logits_NV, log_sum_N, entropy_N)
        ctx.chunk_size = chunk_size
        return entropy_N

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        logits_NV, log_sum_N, entropy_N = ctx.saved_tensors
        gradient_NV = torch.empty_like(logits_NV)
        for source_NC, target_NC in zip(
            torch.split(logits_NV, ctx.chunk_size, -1),
            torch.split(gradient_NV, ctx.chunk_size, -1),
            strict=True,
        ):
            target_NC.copy_(_logit_gradient(source_NC, log_sum_N, entropy_N, upstream[0]))
        return gradient_NV, None


class _EntropyOfHidden(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, chunk_size: int) -> Tensor:
        wide_ND = widened(hidden_ND)
        log_sum_N, entropy_N = _log_sum_and_entropy(
            wide_ND @ widened(part_CD).T for part_CD in torch.split(weight_VD, chunk_size)
        )
        ctx.save_for_backward(hidden_ND, weight_VD, log_sum_N, entropy_N)
        ctx.chunk_size = chunk_size
        return entropy_N

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor | None, None]:
        hidden_ND, weight_VD, log_sum_N, entropy_N = ctx.saved_tensors
        wide_ND = widened(hidden_ND)
        hidden_gradient_ND = torch.zeros_like(wide_ND)
        # A head that is not trained gets none.
        weight_gradient_VD = torch.empty_like(weight_VD) if ctx.needs_input_grad[1] else None
        for begin in range(0, len(weight_VD), ctx.chunk_size):
            part_CD = widened(weight_VD[begin : begin + ctx.chunk_size])
            gradient_NC = _logit_gradient(wide_ND @ part_CD.T, log_sum_N, entropy_N, upstream[0])
            hidden_gradient_ND += gradient_NC @ part_CD
            if weight_gradient_VD is not None:
                weight_gradient_VD[begin : begin + ctx.chunk_size] = gradient_NC.T @ wide_ND
        return hidden_gradient_ND.to(hidden_ND.dtype), weight_gradient_VD, None


def entropy_from_logits(logits_NV: Tensor, *, chunk_size: int = 4096) -> Tensor:
    """Compute ``H = -sum_v p_v log p_v``, ``p = softmax(logits)``, in nats.

    Differentiable. Half precision is widened slice by slice.

    Args:
        logits_NV: Logits ``[..., V]``; divided by the temperature first, where the policy samples
            with one.
        chunk_size: How many columns of the vocabulary are widened at a time.

    Returns:
        Entropies ``[...]``, float32. Equal logits give log V; logits of -infinity (forbidden
        tokens) contribute nothing; a row with a single allowed token gives 0. A row of nothing but
        -infinity is NaN.

    """
    flat_NV = logits_NV.reshape(-1, logits_NV.shape[-1])
    entropy_N: Tensor = _EntropyOfLogits.apply(flat_NV, chunk_size)  # type: ignore[no-untyped-call]
    return entropy_N.reshape(logits_NV.shape[:-1])


def entropy_from_hidden(hidden_ND: Tensor, weight_VD: Tensor, *, chunk_size: int = 4096) -> Tensor:
    """Compute the entropy for logits ``hidden @ weight.T``, which are never all in memory.

    Differentiable in both arguments; the backward pass multiplies each slice once more. Half
    precision is widened slice by slice.

    Args:
        hidden_ND: Last hidden states, ``[..., D]``.
        weight_VD: Weights of the output layer, divided by the temperature where there is one.
        chunk_size: Rows of the vocabulary that are multiplied at a time.

    Returns:
        Entropies ``[...]`` in nats, float32.

    """
    flat_ND = hidden_ND.reshape(-1, hidden_ND.shape[-1])
    entropy_N: Tensor = _EntropyOfHidden.apply(flat_ND, weight_VD, chunk_size)  # type: ignore[no-untyped-call]
    return entropy_N.reshape(hidden_ND.shape[:-1])


def nucleus_entropy(log_all_NV: Tensor, *, top_p: float) -> Tensor:
    """Compute the entropy of each distribution's nucleus, taken for a distribution of its own.

    The nucleus is the smallest set of likeliest tokens whose probabilities add up to `top_p`; no
    gradient flows through the choice.

    Args:
        log_all_NV: Log-probabilities of the whole vocabulary.
        top_p: Least probability of the nucleus.

    Returns:
        Entropies ``[N]`` in nats; 0 where one token is likely enough.

    """
    sorted_NV, order_NV = log_all_NV.detach().sort(dim=-1, descending=True, stable=True)
    before_NV = sorted_NV.exp().cumsum(-1) - sorted_NV.exp()
    # The likeliest token is in it, whatever rounding makes of the sum before it.
    chosen_NV = torch.zeros_like(before_NV, dtype=torch.bool)
    chosen_NV = chosen_NV.scatter(-1, order_NV, before_NV < top_p)
    mass_N1 = torch.where(chosen_NV, log_all_NV, -torch.inf).logsumexp(-1, keepdim=True)
    # Finite outside of the nucleus too, where 0 x infinity would make every gradient NaN.
    inside_NV = torch.where(chosen_NV, log_all_NV - mass_N1, 0.0)
    return -torch.where(chosen_NV, inside_NV.exp() * inside_NV, 0.0).sum(-1)
