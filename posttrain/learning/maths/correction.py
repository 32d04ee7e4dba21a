"""Corrections for rollouts that another policy has sampled: an older one, or an inexact engine.

They are weights of the policy loss, made from the log-ratio of ``ratios.log_ratio(trainer,
engine)``. Its level says whose ratio is bounded: each token's, the product over the sequence
(``sequence_sum``) or the geometric mean (``sequence_mean``).

Decoupled PPO (arXiv 2110.00641; AReaL, arXiv 2505.24298) is a composition: clip the ratio of the
policy to a *proximal* one, and weigh with the ratio of the proximal policy to the one that sampled.
"""

from typing import Literal

import torch
from torch import Tensor

from posttrain.learning.maths.ratios import bounded_ratio

Bound = Literal["none", "truncate", "clamp", "mask"]


def importance_weights(
    log_ratio_BT: Tensor, *, bound: Bound, low: float = 0.0, high: float = torch.inf
) -> Tensor:
    """Compute bounded importance weights, ``w = exp(log_ratio)``.

    ========= ======================= ===================================================
    bound     weight                  source
    ========= ======================= ===================================================
    none      w                       unbiased, of unbounded variance
    truncate  min(w, high)            TIS: Ionides 2008, Yao et al. 2025; verl, TRL
    clamp     clip(w, low, high)      OpenRLHF's token-level TIS
    mask      w within, 0 outside     IcePop, arXiv 2510.18855; both ends belong to the band
    ========= ======================= ===================================================

    Args:
        log_ratio_BT: Log-ratio of the trainer's policy to the one that sampled.
        bound: Which row of the table.
        low: Lower end, for ``clamp`` and ``mask``.
        high: Upper end, for all but ``none``.

    Returns:
        Weights ``[B, T]``, without gradient. Equal policies give exactly 1.

    """
    weights_BT = bounded_ratio(log_ratio_BT.detach())
    if bound == "truncate":
        return weights_BT.clamp(max=high)
    if bound == "clamp":
        return weights_BT.clamp(low, high)
    if bound == "mask":
        return weights_BT * within_band(log_ratio_BT, low=low, high=high)
    return weights_BT


def within_band(log_ratio_BT: Tensor, *, low: float, high: float) -> Tensor:
    """Find where ``low <= exp(log_ratio) <= high``.

    With level ``sequence_mean`` it is the geometric-mean filter, which keeps or drops whole
    sequences; multiply it onto the weights of another level (OpenRLHF's seq-mask: onto unbounded
    token weights).

    Args:
        log_ratio_BT: Log-ratio of the trainer's policy to the one that sampled.
        low: Lower end of the ratio, which belongs to the band.
        high: Upper end, which does too.

    Returns:
        True within the band, ``[B, T]``.

    """
    ratio_BT = bounded_ratio(log_ratio_BT.detach())
    return (ratio_BT >= low) & (ratio_BT <= high)


def log_linear_proximal(
    behavior_logprobs_BT: Tensor, logprobs_BT: Tensor, *, position: float | Tensor
) -> Tensor:
    """Interpolate the log-probabilities of a policy in between, without running it.

    ``behavior + position (current - behavior)``. Source: AReaL's approximation of the proximal
    policy; RLinf.

    Args:
        behavior_logprobs_BT: Log-probabilities under the policy that sampled.
        logprobs_BT: Those under the current one.
        position: ``(v_proximal - v_behavior) / (v_current - v_behavior)`` in policy versions, one
            number or one per token; 0 is the policy that sampled, 1 the current one.

    Returns:
        Log-probabilities ``[B, T]``, without gradient.

    """
    behavior_BT = behavior_logprobs_BT.detach()
    return behavior_BT + position * (logprobs_BT.detach() - behavior_BT)
