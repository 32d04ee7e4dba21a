"""Corrections for rollouts that another policy has sampled: an older one, or an inexact engine.

They are weights for ``policy_loss``, made from the log-ratio of ``ratios.log_ratio(trainer,
sampler)``. Its level says whose ratio is bounded: each token's, the product over the sequence
(``sequence_sum``) or the geometric mean (``sequence_mean``).

Decoupled PPO (arXiv 2110.00641; AReaL, arXiv 2505.24298) is a composition: clip the ratio of the
policy to a *proximal* one, and weigh with the ratio of the proximal policy to the one that sampled.
"""

from typing import Literal

import torch
from torch import Tensor

from posttrain.learning.maths.ratios import bounded_ratio, log_ratio
from posttrain.learning.maths.reduce import Metrics, detached, masked_mean, masked_sum

Bound = Literal["none", "truncate", "clamp", "mask"]


def importance_weights(
    log_ratio_BT: Tensor, *, bound: Bound, low: float = 0.0, high: float = torch.inf
) -> Tensor:
    """``w = exp(log_ratio)``, bounded. ``[B, T]``, without gradient.

    ========= ======================= ===================================================
    bound     weight                  source
    ========= ======================= ===================================================
    none      w                       unbiased, of unbounded variance
    truncate  min(w, high)            TIS: Ionides 2008, Yao et al. 2025; verl, TRL
    clamp     clip(w, low, high)      OpenRLHF's token-level TIS
    mask      w within, 0 outside     IcePop, arXiv 2510.18855; both ends belong to the band
    ========= ======================= ===================================================

    Equal policies give exactly 1.
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
    """True where ``low <= exp(log_ratio) <= high``. ``[B, T]``.

    With level ``sequence_mean`` it is the geometric-mean filter, which keeps or drops whole
    sequences; multiply it onto the weights of another level (OpenRLHF's seq-mask: onto unbounded
    token weights).
    """
    ratio_BT = bounded_ratio(log_ratio_BT.detach())
    return (ratio_BT >= low) & (ratio_BT <= high)


def off_policy_keep(
    log_ratio_BT: Tensor, advantages_BT: Tensor, *, mask_BT: Tensor, threshold: float
) -> Tensor:
    """False for sequences with a negative advantage that the policy has already left. ``[B, T]``.

    Dropped: advantage < 0 and mean of ``-log_ratio`` (policy over sampler, level ``token``) above
    the threshold. Source: off-policy sequence masking of DeepSeek-V3.2, arXiv 2512.02556.
    """
    drift_B = masked_mean(-log_ratio_BT.detach(), mask_BT, -1)
    return ((advantages_BT >= 0) | (drift_B <= threshold).unsqueeze(-1)).expand_as(mask_BT)


def log_linear_proximal(
    behaviour_logprobs_BT: Tensor, logprobs_BT: Tensor, *, position: float | Tensor
) -> Tensor:
    """Log-probabilities of a policy in between, without running it. ``[B, T]``, without gradient.

    ``behaviour + position (current - behaviour)``, ``position = (v_proximal - v_behaviour) /
    (v_current - v_behaviour)`` in policy versions, one number or one per token; 0 is the policy
    that sampled, 1 the current one. Source: AReaL's approximation of the proximal policy; RLinf.
    """
    behaviour_BT = behaviour_logprobs_BT.detach()
    return behaviour_BT + position * (logprobs_BT.detach() - behaviour_BT)


def effective_sample_size(weights_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """``(sum w)^2 / (n sum w^2)`` over n valid tokens: 1 for equal weights, 1/n for a single one.

    Source: Kish 1965. A scalar in [0, 1]; 0 where every weight is 0 or no token is valid.
    """
    squares = masked_sum(weights_BT.square(), mask_BT)
    num_valid = mask_BT.bool().sum()
    size = masked_sum(weights_BT, mask_BT).square() / (num_valid * squares)
    return torch.where(squares > 0, size, 0.0)


def off_policy_metrics(
    logprobs_BT: Tensor, sampler_logprobs_BT: Tensor, mask_BT: Tensor
) -> Metrics:
    """How far the sampler's log-probabilities are from the trainer's for the same tokens.

    ``sampler_kl`` and ``sampler_kl_k3``: KL(sampler || trainer) by k1 and k3, means over tokens.
    ``sampler_gap``: mean absolute difference of the log-probabilities; 0 for an exact engine.
    ``trainer_perplexity``, ``sampler_perplexity``: means over sequences of exp(-mean logprob).
    ``chi2_token``, ``chi2_sequence``: mean of the squared ratio less 1, by tokens and by sequences;
    the variance that the correction brings in. Source: verl's ``compute_offpolicy_metrics``.

    Sequences without a valid token do not count.
    """
    token_BT = log_ratio(logprobs_BT, sampler_logprobs_BT, mask_BT=mask_BT, level="token")
    filled_B = mask_BT.bool().any(-1)
    sequence_B = masked_sum(token_BT, mask_BT, -1)

    def perplexity(logprobs: Tensor) -> Tensor:
        return masked_mean((-masked_mean(logprobs, mask_BT, -1)).exp(), filled_B)

    return detached(
        {
            "sampler_kl": masked_mean(-token_BT, mask_BT),
            "sampler_kl_k3": masked_mean(bounded_ratio(token_BT) - 1 - token_BT, mask_BT),
            "sampler_gap": masked_mean(token_BT.abs(), mask_BT),
            "trainer_perplexity": perplexity(logprobs_BT),
            "sampler_perplexity": perplexity(sampler_logprobs_BT),
            "chi2_token": masked_mean(bounded_ratio(2 * token_BT), mask_BT) - 1,
            "chi2_sequence": masked_mean(bounded_ratio(2 * sequence_B), filled_B) - 1,
        }
    )
