"""The loss of an algorithm: its switches, read off and handed to the formulas of `maths`.

Every loss is given its denominator, which is that of the whole batch, so the losses of
micro-batches and of ranks add up to the loss of the batch, and so do their gradients.
"""

from dataclasses import dataclass

from torch import Tensor

from posttrain.learning.algorithms.config import Algorithm, KlConfig
from posttrain.learning.algorithms.correction_config import CorrectionConfig
from posttrain.learning.algorithms.surrogate import surrogate
from posttrain.learning.algorithms.weighting import correction_weights, product
from posttrain.learning.maths.correction import log_linear_proximal
from posttrain.learning.maths.kl import kl_estimate, kl_loss
from posttrain.learning.maths.policy_loss import entropy_bonus, policy_loss
from posttrain.learning.maths.ratios import log_ratio, ratio_metrics
from posttrain.learning.maths.reduce import Metrics, loss_denominator, masked_mean
from posttrain.learning.maths.value import value_loss


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
    mask_BT = batch.mask_BT
    old_BT = old_logprobs(algorithm.correction, logprobs_BT, batch)
    log_ratio_BT = log_ratio(logprobs_BT, old_BT, mask_BT=mask_BT, level="token")
    advantages_BT = batch.advantages_BT
    if algorithm.entropy is not None and algorithm.entropy.place == "advantage":
        # -log p as a reward has the entropy's gradient, as the score has mean 0 (Williams, 1992).
        advantages_BT = advantages_BT - algorithm.entropy.coefficient * old_BT
    loss, metrics = policy_loss(
        surrogate(
            algorithm.ratio,
            logprobs_BT,
            advantages_BT,
            log_ratio_BT=log_ratio_BT,
            mask_BT=mask_BT,
        ),
        mask_BT,
        aggregation=algorithm.aggregation.kind,
        denominator=denominator,
        weights_BT=_weights(algorithm.correction, logprobs_BT, old_BT, batch),
    )
    metrics |= ratio_metrics(log_ratio_BT, mask_BT)
    metrics["logprob_gap"] = masked_mean(_gap(log_ratio_BT, logprobs_BT, old_BT, batch), mask_BT)
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
    """Share of this part in the critic's loss, ``coefficient x`` `posttrain.learning.maths.value`.

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


def _gap(log_ratio_BT: Tensor, logprobs_BT: Tensor, old_BT: Tensor, batch: PolicyBatch) -> Tensor:
    """Distance of the log-probabilities from the sampler's; no gradient."""
    sampled_BT = batch.sampled_logprobs_BT
    if old_BT is sampled_BT:
        return log_ratio_BT.detach().abs()
    logprobs_BT = logprobs_BT.detach()
    return log_ratio(logprobs_BT, sampled_BT, mask_BT=batch.mask_BT, level="token").abs()


def _weights(
    correction: CorrectionConfig, logprobs_BT: Tensor, old_BT: Tensor, batch: PolicyBatch
) -> Tensor | None:
    """Correction for the sampler, times the weights that came with the batch."""
    corrected_BT = correction_weights(
        correction,
        logprobs_BT.detach(),
        old_logprobs_BT=old_BT,
        sampled_logprobs_BT=batch.sampled_logprobs_BT,
        advantages_BT=batch.advantages_BT,
        mask_BT=batch.mask_BT,
    )
    return product([each for each in (batch.weights_BT, corrected_BT) if each is not None])


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
