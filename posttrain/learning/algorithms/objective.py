"""The advantages and the loss of an algorithm: its parts in order, each given what it needs.

Every loss is given its denominator, which is that of the whole batch, so the losses of
micro-batches and of ranks add up to the loss of the batch, and so do their gradients.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.batches import (
    PolicyBatch,
    RolloutBatch,
    TokenAdvantages,
    TokenCost,
    TokenLoss,
    multiplied,
    needed,
)
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.part import KNOWN_WHEN_DRAWN
from posttrain.learning.algorithms.part_outputs import (
    PartOutputs,
    generated,
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
    whiten,
)
from posttrain.stage.errors import UserError
from posttrain.stage.part_checks import check_declared, where_it_failed
from posttrain.stage.slots import name_of


def advantages(
    algorithm: Algorithm, rollouts: RolloutBatch, *, max_tokens: int | None = None
) -> TokenAdvantages:
    """Turn the rewards of a whole generation into advantages, before it is cut into parts.

    In order: penalty for length, costs of regularizers, the estimate, whitening, sign weights.

    Args:
        algorithm: The algorithm.
        rollouts: The whole generation, with what its parts need.
        max_tokens: The limit of generation, for a length penalty that leaves its limit open.

    Returns:
        Advantages, targets of a critic, and who bears loss.

    Raises:
        ValueError: A tensor that the algorithm needs is missing.
        UserError: A part gives a tensor of another shape, or numbers that are not finite.

    """
    rewards_B = rollouts.rewards_B
    if algorithm.overlong is not None:
        length_B = needed(rollouts.mask_BT, "mask_BT", "overlong").bool().sum(-1)
        penalty_B = algorithm.overlong.penalty(length_B, max_tokens).to(rewards_B.dtype)
        rewards_B = rewards_B + algorithm.overlong.factor * penalty_B
    costs = [
        TokenCost(each.coefficient, generated(each, "token_cost", cost_BT, rollouts))
        for each in algorithm.regularizers.values()
        if (cost_BT := each.token_cost(rollouts)) is not None
    ]
    if rollouts.token_rewards_BT is not None:
        costs.append(TokenCost(-1.0, rollouts.token_rewards_BT))
    return _assigned(algorithm.advantage, rollouts, rewards_B=rewards_B, costs=costs)


def generation_weights(
    algorithm: Algorithm, rollouts: RolloutBatch, advantages_BT: Tensor
) -> Tensor | None:
    """Multiply the token weights that are fixed before the first update.

    Args:
        algorithm: The algorithm.
        rollouts: The whole generation, with what its parts need.
        advantages_BT: `[B, T]`, or `[B, 1]` where all tokens of a rollout share one.

    Returns:
        Weights `[B, T]` or `[B, 1]`; None where there are none.

    Raises:
        UserError: A part gives a tensor of another shape, or numbers that are not finite.

    """
    found = [
        generated(each, "of_generation", weights_BT, rollouts, shared=True)
        for each in algorithm.token_weights.values()
        if (weights_BT := each.of_generation(rollouts, advantages_BT)) is not None
    ]
    return multiplied(found)


def generation_marks(
    algorithm: Algorithm, rollouts: RolloutBatch, advantages_BT: Tensor
) -> list[Tensor]:
    """Ask the regularizers that mark tokens which ones they act on.

    Args:
        algorithm: The algorithm.
        rollouts: The whole generation, with what its parts need.
        advantages_BT: `[B, T]`, or `[B, 1]` where all tokens of a rollout share one.

    Returns:
        Numbers `[B, T]` of each such regularizer, in the algorithm's order.

    Raises:
        UserError: A part gives a tensor of another shape, or numbers that are not finite.

    """
    return [
        generated(each, "marks", each.marks(rollouts, advantages_BT), rollouts)
        for each in algorithm.regularizers.values()
        if each.MARKS
    ]


def informative(advantage: Advantage, rollouts: RolloutBatch) -> Tensor:
    """Tell which rollouts have something to teach by the rewards given here alone.

    No length penalty, no divergence and no critic has a say. Where an
    advantage is more than a reward against those of its group, every rollout has.

    Args:
        advantage: Knows whose rewards differ from what.
        rollouts: Any number of whole groups.

    Returns:
        `[B]`, true or false; a group is learned from where it holds for one of its rollouts.

    Raises:
        UserError: The advantage cannot do without what is computed of a whole generation later.
        AttributeError: An advantage that needs nothing of it has a bug.
        TypeError: The same.
        ValueError: The same.

    """
    if not advantage.compares_rewards:
        return torch.ones_like(rollouts.group_B, dtype=torch.bool)
    plain = advantage.model_copy(update={"whiten": "none"})
    try:
        found = _assigned(plain, rollouts, rewards_B=rollouts.rewards_B)
    except (AttributeError, TypeError, ValueError) as error:
        late = sorted(advantage.needs - KNOWN_WHEN_DRAWN)
        if not late:
            raise
        raise UserError(
            f"{name_of(advantage)}: estimate is asked by rewards alone which groups teach"
            f" something, before there is what it needs ({', '.join(late)}), and ended with"
            f" {where_it_failed(error)}; let it compare rewards where a tensor is None, or let"
            " compares_rewards be False"
        ) from error
    taught = found.advantages_BT != 0
    return (taught if rollouts.mask_BT is None else taught & rollouts.mask_BT.bool()).any(-1)


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


def _assigned(
    advantage: Advantage,
    rollouts: RolloutBatch,
    *,
    rewards_B: Tensor,
    costs: Sequence[TokenCost] = (),
) -> TokenAdvantages:
    """Estimate, whiten and weigh; statistics are those of the whole generation."""
    bearing = advantage.bearing(rollouts)
    if bearing is not None:
        taught_B = (bearing.policy_BT | bearing.critic_BT).any(-1)
        rollouts = replace(rollouts, scored_B=taught_B)
    include_B = _included(rollouts, dropped=advantage.truncated == "drop")

    def estimated(paid_B: Tensor) -> tuple[Tensor, Tensor | None]:
        found = advantage.estimate(rollouts, rewards_B=paid_B, costs=costs, include_B=include_B)
        wanted = "advantages, and targets of a critic or None"
        values_BT, returns_BT = pair_of(advantage, "estimate", found, wanted)
        values_BT = generated(advantage, "estimate", values_BT, rollouts, shared=True)
        if returns_BT is not None:
            returns_BT = generated(advantage, "estimate", returns_BT, rollouts)
        return values_BT, returns_BT

    if rollouts.rewards_BC is None:
        values_BT, returns_BT = estimated(rewards_B)
    else:
        weights_C = needed(rollouts.weights_C, "weights_C", "rewards_BC")
        apart = zip(weights_C, rollouts.rewards_BC.unbind(-1), strict=True)
        values_BT = torch.stack([weight * estimated(each_B)[0] for weight, each_B in apart]).sum(0)
        returns_BT = None
    if advantage.whiten != "none":
        mask_BT = needed(rollouts.mask_BT, "mask_BT", "whiten").bool()
        mask_BT = mask_BT if bearing is None else bearing.policy_BT
        counted_BT = mask_BT if include_B is None else mask_BT & include_B[:, None]
        spread, epsilon = advantage.whiten, advantage.whiten_epsilon
        values_BT = whiten(values_BT.expand_as(mask_BT), counted_BT, spread=spread, epsilon=epsilon)
    bears_loss_B = _included(rollouts, dropped=advantage.truncated != "keep")
    if bears_loss_B is None:
        bears_loss_B = torch.ones_like(rollouts.group_B, dtype=torch.bool)
    if advantage.learn_from != "all":
        signed_BT = values_BT > 0 if advantage.learn_from == "positive" else values_BT < 0
        if rollouts.mask_BT is not None:
            signed_BT = signed_BT & rollouts.mask_BT.bool()
        bears_loss_B = bears_loss_B & signed_BT.any(-1)
    values_BT = torch.where(bears_loss_B[:, None], values_BT, 0.0)
    if bearing is not None:
        values_BT = torch.where(bearing.policy_BT, values_BT, 0.0)
    good, bad = advantage.positive_weight, advantage.negative_weight
    if (good, bad) != (1.0, 1.0):
        values_BT = torch.where(values_BT > 0, values_BT * good, values_BT * bad)
    return TokenAdvantages(values_BT, returns_BT, bears_loss_B, bearing)


def _included(rollouts: RolloutBatch, *, dropped: bool) -> Tensor | None:
    """Rollouts that were judged and, where `dropped`, not cut off; None where all count."""
    scored_B = None if rollouts.scored_B is None else rollouts.scored_B.bool()
    if not dropped:
        return scored_B
    whole_B = ~needed(rollouts.truncated_B, "truncated_B", "advantage.truncated").bool()
    return whole_B if scored_B is None else scored_B & whole_B
