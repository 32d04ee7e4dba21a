"""The loss of an algorithm: its parts in order, each given what it needs.

Every loss is given its denominator, which is that of the whole batch, so the losses of
micro-batches and of ranks add up to the loss of the batch, and so do their gradients.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from posttrain.learning.algorithms.batches import (
    PolicyBatch,
    TokenLoss,
    multiplied,
    needed,
)
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.part_outputs import (
    PartOutputs,
    given,
    note_given,
    pair_of,
)
from posttrain.learning.algorithms.regularizers.base import BatchShare, Regularizer
from posttrain.learning.maths.correction import log_linear_proximal
from posttrain.learning.maths.ratios import log_ratio, ratio_metrics
from posttrain.learning.maths.reduce import (
    Metrics,
    aggregate,
    detached,
    loss_denominator,
    masked_mean,
)
from posttrain.stage.part_checks import check_declared
from posttrain.stage.slots import name_of


def denominator(algorithm: Algorithm, mask_BT: Tensor, *, max_tokens: int | None = None) -> int:
    """Count what these rollouts add to the denominator of the loss.

    Take it over the whole batch (or sum it over its parts) and hand it to every part's objective.

    Args:
        algorithm: The algorithm.
        mask_BT: The drawn tokens.
        max_tokens: The limit of generation, for a constant length that the algorithm leaves open.

    Returns:
        Tokens, sequences, or sequences x length.

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
    outputs: PartOutputs | None = None,
) -> tuple[Tensor, Metrics]:
    """Give this part's share of the policy's loss.

    Metrics, as means over the drawn tokens: `clip_fraction`, `approx_kl`, `approx_kl_k3`,
    `ratio_mean` (against the old policy); with weights `weight_mean` and `weight_zero_fraction`;
    and those of the regularizers, `kl` and `entropy_exact`.

    Args:
        algorithm: The algorithm.
        logprobs_BT: Of the policy that learns, in nats, with gradient.
        batch: What the rollouts bring along.
        denominator: Of the whole batch, see `denominator`.
        entropy_BT: Exact entropies in nats, with gradient, where a part needs them.
        outputs: Takes note of what the parts give, for several batches.

    Returns:
        The loss, a scalar, and the metrics.

    Raises:
        ValueError: A tensor that the algorithm needs is missing.
        UserError: A part gives something of another shape than it has to, or a regularizer
            measures what it does not declare.

    """
    mask_BT = batch.mask_BT
    outputs = PartOutputs() if outputs is None else outputs
    note_given(outputs, logprobs_BT, batch)
    old_BT = _old_logprobs(algorithm, logprobs_BT, batch)
    log_ratio_BT = log_ratio(logprobs_BT, old_BT, mask_BT=mask_BT, level="token")
    advantages_BT = batch.advantages_BT
    for each in algorithm.regularizers.values():
        if (bonus_BT := each.advantage_bonus(old_BT)) is not None:
            bonus_BT = given(each, "advantage_bonus", bonus_BT, mask_BT, outputs, shared=True)
            advantages_BT = advantages_BT + bonus_BT
    paid = replace(batch, advantages_BT=advantages_BT)
    token_loss = _token_loss(algorithm, logprobs_BT, log_ratio_BT, paid, outputs)
    share = BatchShare(mask_BT, algorithm.aggregation.kind, denominator)
    weights_BT = _weights(algorithm, logprobs_BT, old_BT, batch, outputs)
    loss, metrics = policy_loss(token_loss, share, weights_BT)
    metrics |= ratio_metrics(log_ratio_BT, mask_BT)
    for name, each, own in _with_own(algorithm, batch):
        added = each.loss(
            logprobs_BT, log_ratio_BT=log_ratio_BT, entropy_BT=entropy_BT, batch=own, share=share
        )
        if added is not None:
            more, measured = pair_of(each, "loss", added, "the loss, and metrics by name")
            check_declared(measured, each.metrics, part=name_of(each))
            loss = loss + given(each, "loss", more, None, outputs)
            names = algorithm.metric_names(name)
            metrics |= {names[metric]: value for metric, value in measured.items()}
    return loss, metrics


def _with_own(
    algorithm: Algorithm, batch: PolicyBatch
) -> Iterator[tuple[str, Regularizer, PolicyBatch]]:
    """Each regularizer with its name, and the batch with its own divergence, marks and past."""
    given = (batch.divergences_KBT, batch.marks_KBT, batch.past_K2)
    divergences, marks, past = (iter(() if each is None else each) for each in given)
    for name, each in algorithm.regularizers.items():
        mark_BT = next(marks, None) if each.MARKS else None
        past_2 = next(past, None) if each.FOLLOWS else None
        own_BT = next(divergences, None) if "reference_divergence" in each.needs else None
        yield name, each, replace(batch, divergence_BT=own_BT, mark_BT=mark_BT, past_2=past_2)


def policy_loss(
    token_loss: TokenLoss, share: BatchShare, weights_BT: Tensor | None = None
) -> tuple[Tensor, Metrics]:
    """Give `sum(aggregation weight x weight x token loss) / denominator`.

    Metrics, as means over the drawn tokens of this part: `clip_fraction`, and with weights
    `weight_mean` and `weight_zero_fraction`.

    Args:
        token_loss: A surrogate's.
        share: Mask, aggregation, and the denominator of the whole batch.
        weights_BT: Factor on the loss of each token; no gradient flows through it.

    Returns:
        The loss and the metrics; an empty mask gives 0 with gradient 0.

    """
    loss_BT, mask_BT = token_loss.loss_BT, share.mask_BT
    metrics = {"clip_fraction": masked_mean(token_loss.clipped_BT, mask_BT)}
    if weights_BT is not None:
        weights_BT = weights_BT.detach()
        loss_BT = loss_BT * weights_BT
        metrics["weight_mean"] = masked_mean(weights_BT.expand_as(mask_BT), mask_BT)
        metrics["weight_zero_fraction"] = masked_mean((weights_BT == 0).expand_as(mask_BT), mask_BT)
    loss = aggregate(loss_BT, mask_BT, aggregation=share.aggregation, denominator=share.denominator)
    return loss, detached(metrics)


def _old_logprobs(algorithm: Algorithm, logprobs_BT: Tensor, batch: PolicyBatch) -> Tensor:
    """Log-probabilities of the policy that the ratio compares with, without gradient."""
    if algorithm.old_policy == "engine":
        return batch.sampled_logprobs_BT
    if algorithm.old_policy == "recomputed":
        return needed(batch.old_logprobs_BT, "old_logprobs_BT", "old_policy recomputed")
    if batch.position_BT is None:
        raise ValueError("old_policy interpolated needs position_BT")
    return log_linear_proximal(batch.sampled_logprobs_BT, logprobs_BT, position=batch.position_BT)


def _token_loss(
    algorithm: Algorithm,
    logprobs_BT: Tensor,
    log_ratio_BT: Tensor,
    batch: PolicyBatch,
    outputs: PartOutputs,
) -> TokenLoss:
    """The surrogate's loss at the policy's own tokens, and the foreign one's at those of others."""
    surrogate, foreign, mask_BT = algorithm.surrogate, algorithm.foreign, batch.mask_BT
    found = surrogate.token_loss(logprobs_BT, log_ratio_BT, batch)
    wanted = "the loss of each token, and where it was clipped"
    tensors = pair_of(surrogate, "token_loss", found, wanted)
    own = TokenLoss(*(given(surrogate, "token_loss", each, mask_BT, outputs) for each in tensors))
    if foreign is None or batch.foreign_B is None:
        return own
    loss_BT = foreign.batch_loss(logprobs_BT, batch)
    loss_BT = given(foreign, "token_loss", loss_BT, mask_BT, outputs)
    others_B1 = batch.foreign_B.unsqueeze(-1)
    return TokenLoss(torch.where(others_B1, loss_BT, own.loss_BT), own.clipped_BT & ~others_B1)


def _weights(
    algorithm: Algorithm,
    logprobs_BT: Tensor,
    old_BT: Tensor,
    batch: PolicyBatch,
    outputs: PartOutputs,
) -> Tensor | None:
    """The weights that came with the batch, times those of this update."""
    now_BT = logprobs_BT.detach()
    made = [
        given(each, "of_update", weights_BT, batch.mask_BT, outputs, shared=True)
        for each in algorithm.token_weights.values()
        if (weights_BT := each.of_update(now_BT, old_logprobs_BT=old_BT, batch=batch)) is not None
    ]
    return multiplied(made if batch.weights_BT is None else [batch.weights_BT, *made])
