"""From the correction's switches to a factor on the loss of each token."""

import torch
from torch import Tensor

from posttrain.learning.algorithms.correction_config import CorrectionConfig
from posttrain.learning.maths.correction import importance_weights, off_policy_keep, within_band
from posttrain.learning.maths.ratios import log_ratio


def correction_weights(
    correction: CorrectionConfig,
    logprobs_BT: Tensor,
    *,
    old_logprobs_BT: Tensor,
    sampled_logprobs_BT: Tensor,
    advantages_BT: Tensor,
    mask_BT: Tensor,
) -> Tensor | None:
    """The product of importance weights, band and drift filter, without gradient. ``[B, T]``.

    Weights and band look at old against sampler, the drift at the policy that learns against the
    sampler. None where the algorithm corrects nothing.
    """
    factors: list[Tensor] = []
    if (weights := correction.weights) is not None:
        ratio_BT = log_ratio(
            old_logprobs_BT, sampled_logprobs_BT, mask_BT=mask_BT, level=weights.level
        )
        low = 0.0 if weights.low is None else weights.low
        high = torch.inf if weights.high is None else weights.high
        factors.append(importance_weights(ratio_BT, bound=weights.bound, low=low, high=high))
    if (band := correction.band) is not None:
        ratio_BT = log_ratio(
            old_logprobs_BT, sampled_logprobs_BT, mask_BT=mask_BT, level=band.level
        )
        factors.append(within_band(ratio_BT, low=band.low, high=band.high))
    if correction.max_drift is not None:
        drift_BT = log_ratio(logprobs_BT, sampled_logprobs_BT, mask_BT=mask_BT, level="token")
        factors.append(
            off_policy_keep(
                drift_BT, advantages_BT, mask_BT=mask_BT, threshold=correction.max_drift
            )
        )
    return product(factors)


def product(factors: list[Tensor]) -> Tensor | None:
    """All factors multiplied, numbers or truth values; None where there is none."""
    total: Tensor | None = None
    for factor in factors:
        total = factor if total is None else total * factor
    return total
