"""What an algorithm assigns to the tokens of a whole generation, before its first update."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from posttrain.learning.algorithms.advantages.base import Advantage
from posttrain.learning.algorithms.batches import (
    RolloutBatch,
    TokenAdvantages,
    TokenCost,
    multiplied,
    needed,
)
from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.part import KNOWN_WHEN_DRAWN
from posttrain.learning.algorithms.part_outputs import generated, pair_of
from posttrain.learning.maths.reduce import whiten
from posttrain.stage.errors import UserError
from posttrain.stage.part_checks import where_it_failed
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
