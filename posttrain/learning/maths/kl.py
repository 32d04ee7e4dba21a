"""Estimates of the divergence between policy and reference from the sampled tokens alone.

With ``d = logprob - reference logprob`` and tokens drawn from the policy, each estimator has the
divergence as its mean. As a *loss* it is another matter: only some have its gradient.

=============== =========================== =====================================================
estimator       value                       gradient, when it is put into a loss
=============== =========================== =====================================================
k1              d                           0 on average: of no use
k2              d^2 / 2 (biased)            exact for reverse KL, on-policy only
k3              exp(-d) - 1 + d             that of the *forward* KL, on-policy only
ratio x k1      (pi / old) d                exact for reverse KL, also off-policy
ratio x k2      (pi / old) d^2 / 2          of no divergence here
ratio x k3      (pi / old) k3               exact for reverse KL, also off-policy
the others      see `kl_estimate`           of another divergence than their value's
ratio x others  (pi / old) f(exp(-d))       exact for what they are called, also off-policy
=============== =========================== =====================================================

Why the ratio mends them: the divergence is sum(pi f(ref / pi)), and its gradient goes through both
pi; an estimate on drawn tokens only has that through f, and the ratio brings the other.

Sources: Schulman, "Approximating KL Divergence" (2020), for k1-k3; arXiv 2506.09477 and 2510.01555
for the gradients. ``tests/learning/maths/test_kl.py`` checks the table by exact enumeration.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from posttrain.learning.maths.ratios import REACH, bounded_ratio
from posttrain.learning.maths.reduce import Aggregation, Metrics, aggregate, detached, masked_mean

KLEstimator = Literal[
    "k1", "k2", "k3", "forward", "jensen_shannon", "chi_squared", "reverse_chi_squared"
]


def _jensen_shannon(d_BT: Tensor) -> Tensor:
    # log((1 + u) / 2) with u = exp(-d), exact near u = 1.
    log_middle_BT = torch.log1p(torch.expm1(-d_BT) / 2)
    return (torch.exp(-d_BT) * (-d_BT - log_middle_BT) - log_middle_BT) / 2


_POLYNOMIALS: frozenset[KLEstimator] = frozenset({"k1", "k2"})
"""Estimators without an exponential, which need no bound."""

KL_ESTIMATORS: dict[KLEstimator, Callable[[Tensor], Tensor]] = {
    "k1": lambda d_BT: d_BT,
    "k2": lambda d_BT: d_BT.square() / 2,
    "k3": lambda d_BT: torch.expm1(-d_BT) + d_BT,
    "forward": lambda d_BT: -d_BT * torch.exp(-d_BT) - torch.expm1(-d_BT),
    "jensen_shannon": _jensen_shannon,
    "chi_squared": lambda d_BT: torch.expm1(-d_BT).square(),
    # 2 cosh(d) - 2, in the form that is exact near d = 0.
    "reverse_chi_squared": lambda d_BT: 4 * torch.sinh(d_BT / 2).square(),
}


def kl_estimate(
    logprobs_BT: Tensor,
    reference_logprobs_BT: Tensor,
    *,
    estimator: KLEstimator,
    ceiling: float | None = None,
) -> Tensor:
    """Estimate the divergence of policy from reference at each token that the policy drew.

    ``d = logprob - reference``, ``u = exp(-d) = reference / policy``:

    =================== ================================== ====================================
    estimator           value                              its mean over the policy's tokens
    =================== ================================== ====================================
    k1                  d                                  KL(policy || reference)
    k2                  d^2 / 2                            near KL(policy || reference); biased
    k3                  u - 1 - log u                      KL(policy || reference)
    forward             u log u - (u - 1)                  KL(reference || policy)
    jensen_shannon      (u log(u/m) - log m)/2, m=(1+u)/2  Jensen-Shannon divergence
    chi_squared         (u - 1)^2                          chi^2(reference || policy)
    reverse_chi_squared u - 2 + 1/u                        chi^2(policy || reference)
    =================== ================================== ====================================

    All but k1 are never negative, token by token; u log u alone would have the mean of
    ``forward`` but not that, and so would 1/u - 1 of ``reverse_chi_squared``, which is the one that
    arXiv 2403.03185 (Correlated Proxies) holds a policy by. f-DPO (arXiv 2309.16240) tabulates the
    generators f(u).

    Args:
        logprobs_BT: Log-probabilities of the drawn tokens under the policy, in nats.
        reference_logprobs_BT: Those under the reference.
        estimator: Which row of the table.
        ceiling: Bounds the value (verl and SkyRL: k3 at 10); a bounded token has no gradient. None
            sets no bound.

    Returns:
        One estimate per token, ``[B, T]``. Equal policies give exactly 0. Where an exponential
        enters, d is held within +-20, as verl holds it for k3: beyond, there is no gradient, and
        no value or gradient overflows.

    """
    d_BT = logprobs_BT - reference_logprobs_BT
    if estimator not in _POLYNOMIALS:
        d_BT = d_BT.clamp(-REACH, REACH)
    values_BT = KL_ESTIMATORS[estimator](d_BT)
    return values_BT if ceiling is None else values_BT.clamp(max=ceiling)


def held_near(logprobs_BT: Tensor, *, old_BT: Tensor, reference_BT: Tensor) -> Tensor:
    """Hold a policy within 20 nats of the policy that sampled and of the reference, at each token.

    A ratio times a divergence is a small number times a large one where the policy has left a
    token: ``ratio x k3`` tends to ``reference / old`` there, and its gradient to 0. Were the ratio
    held alone, the product would grow without bound; so both are taken of the policy at the border.

    Args:
        logprobs_BT: Log-probabilities of the drawn tokens under the policy, in nats.
        old_BT: Those under the policy that sampled.
        reference_BT: Those under the reference.

    Returns:
        Log-probabilities ``[B, T]``; beyond the border without gradient.

    """
    low_BT = torch.maximum(old_BT, reference_BT) - REACH
    high_BT = torch.minimum(old_BT, reference_BT) + REACH
    return logprobs_BT.clamp(low_BT, high_BT)


def kl_loss(
    kl_BT: Tensor,
    mask_BT: Tensor,
    *,
    coefficient: float,
    aggregation: Aggregation,
    denominator: Tensor | float,
    log_ratio_BT: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """Aggregate a divergence into a term of the loss, ``coefficient x aggregated divergence``.

    Args:
        kl_BT: Estimates of ``kl_estimate``, with their gradient.
        mask_BT: The valid tokens.
        coefficient: Factor on the divergence, often called beta.
        aggregation: How tokens and sequences are averaged.
        denominator: Of the whole batch, from ``reduce.loss_denominator`` summed over its parts.
        log_ratio_BT: Policy over the policy that sampled, *with* its gradient (zeros in value when
            on-policy). It multiplies each token by its ratio, which makes k1 and k3 exact: see the
            table at the top of this module. Both are then of a policy that `held_near` holds. None
            leaves it out.

    Returns:
        A scalar to add to the policy loss; and the metric ``kl``, the mean over the valid tokens in
        nats, without the ratio.

    """
    weighted_BT = kl_BT if log_ratio_BT is None else bounded_ratio(log_ratio_BT) * kl_BT
    total = aggregate(weighted_BT, mask_BT, aggregation=aggregation, denominator=denominator)
    return coefficient * total, detached({"kl": masked_mean(kl_BT, mask_BT)})


def kl_in_reward(
    rewards_BT: Tensor, kl_BT: Tensor, *, mask_BT: Tensor, coefficient: float
) -> Tensor:
    """Take ``coefficient x kl`` off the rewards of the valid tokens.

    The score function then gives the exact gradient of the reverse KL with estimator k1 (arXiv
    2009.01325; 2506.09477).

    Args:
        rewards_BT: Reward of each token.
        kl_BT: Estimates of ``kl_estimate``.
        mask_BT: The valid tokens.
        coefficient: Factor on the divergence.

    Returns:
        Rewards ``[B, T]``; no gradient flows through the divergence.

    """
    return rewards_BT - torch.where(mask_BT.bool(), coefficient * kl_BT.detach(), 0.0)
