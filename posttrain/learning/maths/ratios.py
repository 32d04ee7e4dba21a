"""Log-ratios of two policies on the tokens of a rollout, at the level of tokens or of sequences.

Everything downstream works on the log-ratio, so an identical policy is exactly 0 and the product
over a sequence is a sum.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from posttrain.learning.maths.reduce import Metrics, detached, masked_mean, masked_sum

REACH = 20.0
"""How far apart log-probabilities may lie before an exponential of their difference, in nats."""

RatioLevel = Literal["token", "sequence_mean", "sequence_token", "sequence_sum"]


def _token(difference_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return difference_BT


def _sequence_mean(difference_BT: Tensor, mask_BT: Tensor) -> Tensor:
    mean_B = masked_mean(difference_BT, mask_BT, -1)
    return mean_B.unsqueeze(-1).expand_as(difference_BT)


def _sequence_token(difference_BT: Tensor, mask_BT: Tensor) -> Tensor:
    # The value is the mean; the gradient reaches each token through its own difference alone.
    frozen_BT = _sequence_mean(difference_BT, mask_BT).detach()
    return frozen_BT + difference_BT - difference_BT.detach()


def _sequence_sum(difference_BT: Tensor, mask_BT: Tensor) -> Tensor:
    sum_B = masked_sum(difference_BT, mask_BT, -1)
    return sum_B.unsqueeze(-1).expand_as(difference_BT)


RATIO_LEVELS: dict[RatioLevel, Callable[[Tensor, Tensor], Tensor]] = {
    "token": _token,
    "sequence_mean": _sequence_mean,
    "sequence_token": _sequence_token,
    "sequence_sum": _sequence_sum,
}


def log_ratio(
    logprobs_BT: Tensor, old_logprobs_BT: Tensor, *, mask_BT: Tensor, level: RatioLevel
) -> Tensor:
    """Compute the logarithm of ``policy / old policy`` at each token.

    ================ ============================================ ==========================
    level            log-ratio at token t                         source
    ================ ============================================ ==========================
    token            d_t = logprob_t - old_t                      PPO, arXiv 1707.06347
    sequence_mean    mean of d over the sequence                  GSPO, arXiv 2507.18071
    sequence_token   the same number; gradient through d_t only   GSPO-token, the same paper
    sequence_sum     sum of d over the sequence                   the exact importance ratio
    ================ ============================================ ==========================

    ``sequence_mean`` and ``sequence_token`` agree in value; their gradients agree too where the
    advantage is the same at all tokens of a sequence and the aggregation is a mean over each
    sequence.

    Args:
        logprobs_BT: Log-probabilities of the drawn tokens under the policy, in nats.
        old_logprobs_BT: Those under the policy that it is compared with.
        mask_BT: The valid tokens.
        level: Which row of the table.

    Returns:
        Log-ratios ``[B, T]``, 0 at masked tokens; a sequence without a valid token has 0
        everywhere.

    """
    difference_BT = torch.where(mask_BT.bool(), logprobs_BT - old_logprobs_BT, 0.0)
    spread_BT = RATIO_LEVELS[level](difference_BT, mask_BT)
    return torch.where(mask_BT.bool(), spread_BT, 0.0)


def bounded_ratio(log_ratio_BT: Tensor) -> Tensor:
    """Compute ``exp(log_ratio)``, with the log-ratio held within +-20, as verl does.

    Without the bound a log-ratio above 88 is infinite in float32, and the gradient of a token that
    a clip has discarded becomes 0 x infinity = NaN. Beyond the bound the gradient is 0.

    Args:
        log_ratio_BT: Log-ratios of any shape.

    Returns:
        Ratios of the same shape.

    """
    return log_ratio_BT.clamp(-REACH, REACH).exp()


def ratio_metrics(log_ratio_BT: Tensor, mask_BT: Tensor) -> Metrics:
    """Measure how far the policy is from the one that it is compared with.

    Args:
        log_ratio_BT: Log-ratio of the policy to the older one at each token.
        mask_BT: The valid tokens.

    Returns:
        Means over the valid tokens: ``approx_kl`` of -log ratio (k1) and ``approx_kl_k3`` of
        ``ratio - 1 - log ratio``, both estimates of KL(old || policy) on tokens drawn from old, in
        nats; ``ratio_mean``, which should stay near 1.

    """
    ratio_BT = bounded_ratio(log_ratio_BT)
    return detached(
        {
            "approx_kl": masked_mean(-log_ratio_BT, mask_BT),
            "approx_kl_k3": masked_mean(ratio_BT - 1 - log_ratio_BT, mask_BT),
            "ratio_mean": masked_mean(ratio_BT, mask_BT),
        }
    )
