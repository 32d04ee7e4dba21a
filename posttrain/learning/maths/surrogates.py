"""Policy-gradient surrogates: one loss per token, to be aggregated by ``policy_loss``.

All take the log-ratio of ``ratios.log_ratio`` and advantages that broadcast to ``[B, T]``. The
gradient flows through the log-probabilities; advantages, old log-probabilities and frozen weights
carry none.
"""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from posttrain.learning.maths.ratios import bounded_ratio
from posttrain.learning.maths.reduce import masked_mean

CispoClip = Literal["two_sided", "upper", "cap"]


class TokenLoss(NamedTuple):
    """A loss per token, and at which tokens a clip took hold."""

    loss_BT: Tensor
    clipped_BT: Tensor


def _nothing_clipped(loss_BT: Tensor) -> TokenLoss:
    return TokenLoss(loss_BT, torch.zeros_like(loss_BT, dtype=torch.bool))


def reinforce(logprobs_BT: Tensor, advantages_BT: Tensor) -> TokenLoss:
    """``-A logprob``: the plain policy gradient, correct for rollouts of the current policy.

    Source: Williams 1992; Kool et al. 2019 for groups.
    """
    return _nothing_clipped(-advantages_BT * logprobs_BT)


def clipped(
    log_ratio_BT: Tensor,
    advantages_BT: Tensor,
    *,
    low: float,
    high: float,
    dual: float | None = None,
) -> TokenLoss:
    """``max(-A r, -A clip(r, 1 - low, 1 + high))``, r the ratio.

    ``low == high`` is PPO (arXiv 1707.06347); ``high > low`` is DAPO's clip-higher (arXiv
    2503.14476), 0.2 and 0.28 there; with the ratio of level ``sequence_mean`` or ``sequence_token``
    it is GSPO (arXiv 2507.18071), whose ranges are near 3e-4. ``dual`` (> 1, often 3) bounds the
    loss of a negative advantage at ``-dual A``, where a ratio that exploded would otherwise rule
    the step (arXiv 1912.09729).

    A token is clipped when the clipped branch is the larger one: its gradient is then exactly 0. At
    ratio 1 nothing is clipped and the loss is ``-A`` with the gradient of REINFORCE.
    """
    ratio_BT = bounded_ratio(log_ratio_BT)
    plain_BT = -advantages_BT * ratio_BT
    bounded_BT = -advantages_BT * ratio_BT.clamp(1 - low, 1 + high)
    clipped_BT = bounded_BT > plain_BT
    loss_BT = torch.maximum(plain_BT, bounded_BT)
    if dual is None:
        return TokenLoss(loss_BT, clipped_BT)
    ceiling_BT = torch.where(advantages_BT < 0, -dual * advantages_BT, torch.inf)
    return TokenLoss(torch.minimum(loss_BT, ceiling_BT), clipped_BT | (loss_BT > ceiling_BT))


def cispo(
    logprobs_BT: Tensor,
    advantages_BT: Tensor,
    *,
    log_ratio_BT: Tensor,
    clip: CispoClip,
    low: float = 0.0,
    high: float,
) -> TokenLoss:
    """``-stop_gradient(w) A logprob``: the ratio is a bounded weight, no gradient is cut off.

    Source: MiniMax-M1, arXiv 2506.13585. Three definitions are in use under this one name:

    ============ ============================== =====================================
    clip         w                              where
    ============ ============================== =====================================
    two_sided    clip(r, 1 - low, 1 + high)     the paper; verl, slime, SkyRL
    upper        min(r, 1 + high)               open-instruct
    cap          min(r, high), high e.g. 5      TRL, ScaleRL (arXiv 2510.13786)
    ============ ============================== =====================================
    """
    ratio_BT = bounded_ratio(log_ratio_BT.detach())
    lower = 1 - low if clip == "two_sided" else 0.0
    weight_BT = ratio_BT.clamp(lower, high if clip == "cap" else 1 + high)
    return TokenLoss(-weight_BT * advantages_BT * logprobs_BT, weight_BT != ratio_BT)


def soft_gated(
    log_ratio_BT: Tensor, advantages_BT: Tensor, *, positive_tau: float, negative_tau: float
) -> TokenLoss:
    """``-A (4 / tau) sigmoid(tau (r - 1))``: a gate that fades smoothly where PPO cuts off.

    SAPO (soft adaptive policy optimization), arXiv 2511.20347; its temperatures are 1.0 for
    positive advantages and 1.05 for the others. The gradient at ratio 1 is that of REINFORCE. Not
    to be mixed up with SAPO, swarm sampling.
    """
    tau_BT = torch.where(advantages_BT > 0, positive_tau, negative_tau)
    gate_BT = torch.sigmoid(tau_BT * (bounded_ratio(log_ratio_BT) - 1)) * 4 / tau_BT
    return _nothing_clipped(-advantages_BT * gate_BT)


def geometric_mean(
    log_ratio_BT: Tensor, advantages_BT: Tensor, *, mask_BT: Tensor, low: float, high: float
) -> TokenLoss:
    """``-A exp(mean_t l_t)``, l the token log-ratio, bounded on the harmful side.

    GMPO, arXiv 2507.20673; ``-low`` and ``high`` bound the *logarithm* of the ratio, 0.4 in the
    paper. As in PPO only one side is bounded: above for a positive advantage, below for a negative
    one.

    ``log_ratio_BT`` is of level ``token``; the advantage must be the same at all tokens of a
    sequence. Each valid token carries the loss of its sequence, so aggregate by
    ``sequence_mean_token_mean``.
    """
    kept_BT = torch.where(
        advantages_BT > 0, log_ratio_BT.clamp(max=high), log_ratio_BT.clamp(min=-low)
    )
    ratio_B = bounded_ratio(masked_mean(kept_BT, mask_BT, -1))
    return TokenLoss(-advantages_BT * ratio_B.unsqueeze(-1), kept_BT != log_ratio_BT)


def squared(log_ratio_BT: Tensor, advantages_BT: Tensor, *, tau: float) -> TokenLoss:
    """``-A l + (tau / 2) l^2``, l the log-ratio: policy gradient with a square pull to old.

    It is ``(A - tau l)^2 / (2 tau)`` without the constant; its least value is at ``l = A / tau``.
    Source: Kimi k1.5, arXiv 2501.12599, section 2.3.2, with l of level ``sequence_sum`` and A the
    reward less the mean of its group; aggregate by ``sequence_mean_token_mean`` then. With level
    ``token`` it is the form that trainers of long rollouts use.
    """
    if not (tau >= 0 and math.isfinite(tau)):
        raise ValueError(f"tau must be a finite number >= 0, not {tau}")
    return _nothing_clipped(-advantages_BT * log_ratio_BT + tau / 2 * log_ratio_BT.square())
