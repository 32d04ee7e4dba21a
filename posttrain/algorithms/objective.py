"""The loss of an algorithm: its switches, read off and handed to the formulas of `posttrain.maths`.

Every loss is given its denominator, which is that of the whole batch, so the losses of
micro-batches and of ranks add up to the loss of the batch, and so do their gradients.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from posttrain.algorithms.config import Algorithm, KlConfig
from posttrain.algorithms.correction_config import CorrectionConfig
from posttrain.algorithms.ratio_config import (
    CispoRatio,
    ClipRatio,
    GmpoRatio,
    RatioConfig,
    SapoRatio,
    SquaredRatio,
)
from posttrain.maths.correction import (
    importance_weights,
    log_linear_proximal,
    off_policy_keep,
    within_band,
)
from posttrain.maths.kl import kl_estimate, kl_loss
from posttrain.maths.policy_loss import entropy_bonus, policy_loss
from posttrain.maths.ratios import log_ratio, ratio_metrics
from posttrain.maths.reduce import Metrics, loss_denominator, masked_mean
from posttrain.maths.surrogates import (
    TokenLoss,
    cispo,
    clipped,
    geometric_mean,
    reinforce,
    soft_gated,
    squared,
)
from posttrain.maths.value import value_loss


@dataclass(frozen=True)
class PolicyBatch:
    """What is known of some rollouts before the policy is run on them; no tensor has a gradient."""

    mask_BT: Tensor
    """The tokens that the policy drew."""
    advantages_BT: Tensor
    """``[B, T]``, or ``[B, 1]`` where all tokens of a rollout share one."""
    sampled_logprobs_BT: Tensor
    """Of the policy and the engine that sampled."""
    old_logprobs_BT: Tensor | None = None
    """Of the trainer before the step's first update; for `correction.old` recomputed."""
    position_BT: Tensor | float | None = None
    """Where between sampler (0) and current policy (1) the old one is; for interpolated."""
    reference_logprobs_BT: Tensor | None = None
    """Of the reference policy; wherever `kl` is in the loss."""
    weights_BT: Tensor | None = None
    """More factors on the loss of each token, such as the weight of a source."""


def denominator(algorithm: Algorithm, mask_BT: Tensor, *, max_tokens: int | None = None) -> int:
    """What these rollouts add to the denominator: tokens, sequences, or sequences x length.

    Take it over the whole batch (or sum it over its parts) and hand it to every part's objective.
    `max_tokens` is the limit of generation, for a constant length that the algorithm leaves open.
    """
    aggregation = algorithm.aggregation
    length = aggregation.length or max_tokens
    return int(loss_denominator(mask_BT, aggregation.kind, constant_length=length))


def policy_objective(
    algorithm: Algorithm,
    logprobs_BT: Tensor,
    *,
    batch: PolicyBatch,
    denominator: Tensor | float,
    entropy_BT: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """Share of this part in the policy's loss, and its metrics as means over the drawn tokens.

    Inputs:
        algorithm: The switches.
        logprobs_BT: Of the policy that learns, with gradient.
        batch: What the rollouts bring along.
        denominator: Of the whole batch, see `denominator`.
        entropy_BT: Exact entropies with gradient, where `entropy.place` is loss.

    Metrics: ``clip_fraction``, ``approx_kl``, ``approx_kl_k3``, ``ratio_mean`` (against the old
    policy, by tokens), ``logprob_gap`` (mean distance from the sampler); with weights
    ``weight_mean`` and ``weight_zero_fraction``; ``kl`` and ``entropy`` where they are in the loss.

    Raises:
        ValueError: A tensor that the algorithm needs is missing.

    """
    mask_BT, sampled_BT = batch.mask_BT, batch.sampled_logprobs_BT
    old_BT = old_logprobs(algorithm.correction, logprobs_BT, batch)
    log_ratio_BT = log_ratio(logprobs_BT, old_BT, mask_BT=mask_BT, level="token")
    advantages_BT = batch.advantages_BT
    if algorithm.entropy is not None and algorithm.entropy.place == "advantage":
        # -log p as a reward has the entropy's gradient, as the score has mean 0 (Williams, 1992).
        advantages_BT = advantages_BT - algorithm.entropy.coefficient * old_BT
    loss, metrics = policy_loss(
        _surrogate(algorithm.ratio, logprobs_BT, advantages_BT, old_BT=old_BT, mask_BT=mask_BT),
        mask_BT,
        aggregation=algorithm.aggregation.kind,
        denominator=denominator,
        weights_BT=_weights(algorithm.correction, logprobs_BT, old_BT, batch),
    )
    metrics |= ratio_metrics(log_ratio_BT, mask_BT)
    gap_BT = log_ratio(logprobs_BT.detach(), sampled_BT, mask_BT=mask_BT, level="token").abs()
    metrics["logprob_gap"] = masked_mean(gap_BT, mask_BT)
    if algorithm.kl is not None and algorithm.kl.place == "loss":
        estimate_BT = _divergence(algorithm.kl, logprobs_BT, batch.reference_logprobs_BT)
        penalty, more = kl_loss(
            estimate_BT,
            mask_BT,
            coefficient=algorithm.kl.coefficient,
            aggregation=algorithm.aggregation.kind,
            denominator=denominator,
            log_ratio_BT=log_ratio_BT if algorithm.kl.ratio_weighted else None,
        )
        loss, metrics = loss + penalty, metrics | more
    if algorithm.entropy is not None and algorithm.entropy.place == "loss":
        bonus, more = entropy_bonus(
            _differentiable(entropy_BT, logprobs_BT),
            mask_BT,
            coefficient=algorithm.entropy.coefficient,
            aggregation=algorithm.aggregation.kind,
            denominator=denominator,
        )
        loss, metrics = loss + bonus, metrics | more
    return loss, metrics


def value_objective(
    algorithm: Algorithm,
    values_BT: Tensor,
    *,
    returns_BT: Tensor,
    old_values_BT: Tensor,
    mask_BT: Tensor,
    denominator: Tensor | float,
) -> tuple[Tensor, Metrics]:
    """Share of this part in the critic's loss, ``coefficient x`` `posttrain.maths.value`.

    `returns_BT` are those of `credit.advantages`, `old_values_BT` the values it was given.
    """
    if algorithm.critic is None:
        raise ValueError("an algorithm without critic has no value loss")
    loss, metrics = value_loss(
        values_BT,
        returns_BT,
        old_values_BT=old_values_BT,
        mask_BT=mask_BT,
        clip=algorithm.critic.clip,
        aggregation=algorithm.aggregation.kind,
        denominator=denominator,
    )
    return algorithm.critic.coefficient * loss, metrics


def old_logprobs(correction: CorrectionConfig, logprobs_BT: Tensor, batch: PolicyBatch) -> Tensor:
    """Log-probabilities of the policy that the ratio compares with; no gradient. ``[B, T]``."""
    if correction.old == "sampler":
        return batch.sampled_logprobs_BT
    if correction.old == "recomputed":
        return _needed(batch.old_logprobs_BT, "old_logprobs_BT", "correction.old recomputed")
    if batch.position_BT is None:
        raise ValueError("correction.old interpolated needs position_BT")
    return log_linear_proximal(batch.sampled_logprobs_BT, logprobs_BT, position=batch.position_BT)


def _surrogate(
    config: RatioConfig,
    logprobs_BT: Tensor,
    advantages_BT: Tensor,
    *,
    old_BT: Tensor,
    mask_BT: Tensor,
) -> TokenLoss:
    def ratio(level: str) -> Tensor:
        return log_ratio(logprobs_BT, old_BT, mask_BT=mask_BT, level=level)  # type: ignore[arg-type]

    if isinstance(config, ClipRatio):
        return clipped(
            ratio(config.level), advantages_BT, low=config.low, high=config.high, dual=config.dual
        )
    if isinstance(config, CispoRatio):
        return cispo(
            logprobs_BT,
            advantages_BT,
            log_ratio_BT=ratio(config.level),
            clip=config.bound,
            low=config.low or 0.0,
            high=config.high,
        )
    if isinstance(config, SapoRatio):
        return soft_gated(
            ratio(config.level),
            advantages_BT,
            positive_tau=config.positive_tau,
            negative_tau=config.negative_tau,
        )
    if isinstance(config, GmpoRatio):
        return geometric_mean(
            ratio("token"), advantages_BT, mask_BT=mask_BT, low=config.log_low, high=config.log_high
        )
    if isinstance(config, SquaredRatio):
        return squared(ratio(config.level), advantages_BT, tau=config.tau)
    return reinforce(logprobs_BT, advantages_BT)


def _weights(
    correction: CorrectionConfig, logprobs_BT: Tensor, old_BT: Tensor, batch: PolicyBatch
) -> Tensor | None:
    """The product of all factors on the loss of a token; None where there is none."""
    factors: list[Tensor] = [] if batch.weights_BT is None else [batch.weights_BT]
    mask_BT, sampled_BT = batch.mask_BT, batch.sampled_logprobs_BT
    if correction.weights is not None:
        weights = correction.weights
        ratio_BT = log_ratio(old_BT, sampled_BT, mask_BT=mask_BT, level=weights.level)
        factors.append(
            importance_weights(
                ratio_BT,
                bound=weights.bound,
                low=0.0 if weights.low is None else weights.low,
                high=torch.inf if weights.high is None else weights.high,
            )
        )
    if correction.band is not None:
        band = correction.band
        ratio_BT = log_ratio(old_BT, sampled_BT, mask_BT=mask_BT, level=band.level)
        factors.append(within_band(ratio_BT, low=band.low, high=band.high))
    if correction.max_drift is not None:
        drift_BT = log_ratio(logprobs_BT.detach(), sampled_BT, mask_BT=mask_BT, level="token")
        factors.append(
            off_policy_keep(
                drift_BT, batch.advantages_BT, mask_BT=mask_BT, threshold=correction.max_drift
            )
        )
    if not factors:
        return None
    product_BT = torch.ones_like(sampled_BT)
    for factor_BT in factors:
        product_BT = product_BT * factor_BT
    return product_BT


def _divergence(config: KlConfig, logprobs_BT: Tensor, reference_BT: Tensor | None) -> Tensor:
    return kl_estimate(
        logprobs_BT,
        _needed(reference_BT, "reference_logprobs_BT", "kl"),
        estimator=config.estimator,
        ceiling=config.ceiling,
    )


def _differentiable(entropy_BT: Tensor | None, logprobs_BT: Tensor) -> Tensor:
    entropy_BT = _needed(entropy_BT, "entropy_BT", "entropy.place loss")
    if logprobs_BT.requires_grad and not entropy_BT.requires_grad:
        raise ValueError("entropy_BT has no gradient, so a bonus for it would do nothing")
    return entropy_BT


def _needed(tensor: Tensor | None, name: str, what: str) -> Tensor:
    if tensor is None:
        raise ValueError(f"{what} needs {name}")
    return tensor
