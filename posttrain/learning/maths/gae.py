"""Advantages from a critic, its loss, and returns of rewards, over rollouts with observations.

A masked token (a tool's answer, padding) is not an action: the recursions carry their state over it
unchanged, so it costs no discount and the critic's value there is never read.
"""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from posttrain.learning.maths.reduce import Aggregation, Metrics, aggregate, detached, masked_mean


def generalized_advantages(
    rewards_BT: Tensor,
    values_BT: Tensor,
    *,
    mask_BT: Tensor,
    gamma: float,
    lam: float | Tensor,
) -> tuple[Tensor, Tensor]:
    """Compute GAE over the valid tokens of each row.

    ``delta_t = r_t + gamma V_next - V_t`` and ``A_t = delta_t + gamma lam A_next``, where *next* is
    the next **valid** token of the row; ``returns = advantages + values``. Source: arXiv
    1506.02438. Peers differ on gaps: verl, NeMo-RL and AReaL carry over as here; OpenRLHF decays
    once per masked token; SkyRL and slime let the values at masked tokens into the sum. Without
    gaps all agree. ``reduce.whiten`` is the usual next step.

    Args:
        rewards_BT: Reward of each token; those at masked tokens are ignored, so the reward of the
            whole completion belongs on its last valid token.
        values_BT: The critic's value before each token.
        mask_BT: True at the tokens that the policy chose.
        gamma: Discount per chosen token.
        lam: Decay of the trace, one number or one per row ``[B]`` (as VAPO's length-adaptive one,
            arXiv 2504.05118).

    Returns:
        Advantages and returns, ``[B, T]`` each, without gradient; 0 at masked tokens.

    """
    mask_BT = mask_BT.bool()
    next_value_B = torch.zeros_like(values_BT[:, 0])
    next_advantage_B = torch.zeros_like(values_BT[:, 0])
    advantages_BT = torch.zeros_like(values_BT)
    with torch.no_grad():
        for t in reversed(range(values_BT.shape[1])):
            valid_B = mask_BT[:, t]
            delta_B = rewards_BT[:, t] + gamma * next_value_B - values_BT[:, t]
            advantage_B = delta_B + gamma * lam * next_advantage_B
            advantages_BT[:, t] = torch.where(valid_B, advantage_B, 0.0)
            next_advantage_B = torch.where(valid_B, advantage_B, next_advantage_B)
            next_value_B = torch.where(valid_B, values_BT[:, t], next_value_B)
        returns_BT = torch.where(mask_BT, advantages_BT + values_BT, 0.0)
    return advantages_BT, returns_BT


def discounted_returns(rewards_BT: Tensor, mask_BT: Tensor, *, gamma: float) -> Tensor:
    """Compute ``G_t = r_t + gamma G_next`` over the valid tokens of each row.

    The advantage of REINFORCE++ before whitening (arXiv 2501.03262). Also the returns of turns,
    with a row of turn rewards in place of tokens.

    Args:
        rewards_BT: Reward of each token; those at masked tokens are ignored.
        mask_BT: The valid tokens.
        gamma: Discount per valid token.

    Returns:
        Returns ``[B, T]``, 0 at masked tokens. gamma 1 and one reward at the end give that reward
        to every valid token.

    """
    mask_BT = mask_BT.bool()
    following_B = torch.zeros_like(rewards_BT[:, 0])
    returns_BT = torch.zeros_like(rewards_BT)
    for t in reversed(range(rewards_BT.shape[1])):
        here_B = rewards_BT[:, t] + gamma * following_B
        returns_BT[:, t] = torch.where(mask_BT[:, t], here_B, 0.0)
        following_B = torch.where(mask_BT[:, t], here_B, following_B)
    return returns_BT


def value_loss(
    values_BT: Tensor,
    returns_BT: Tensor,
    *,
    old_values_BT: Tensor,
    mask_BT: Tensor,
    clip: float | None,
    aggregation: Aggregation,
    denominator: Tensor | float,
) -> tuple[Tensor, Metrics]:
    """Compute ``1/2 max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2)``, aggregated.

    Source: OpenAI baselines' PPO. The factor 1/2 is that of verl, OpenRLHF, AReaL and NeMo-RL;
    slime has none. The maximum makes it pessimistic: a value that moved too far but *nearer* to its
    return keeps its larger, clipped loss, with gradient 0.

    Args:
        values_BT: The critic's values, with gradient.
        returns_BT: Targets, from ``gae.generalized_advantages``.
        old_values_BT: Values when the rollouts were made.
        mask_BT: The valid tokens.
        clip: How far a value may move before its gradient stops; None for the plain squared error.
        aggregation: How tokens and sequences are averaged.
        denominator: Of the whole batch.

    Returns:
        The loss, a scalar, 0 of an empty mask; and metrics, means over the valid tokens:
        ``value_clip_fraction``, ``value_mean``, ``value_squared_error`` (without clip and 1/2).

    """
    plain_BT = (values_BT - returns_BT).square()
    bounded_BT = plain_BT
    if clip is not None:
        near_BT = torch.minimum(
            torch.maximum(values_BT, old_values_BT - clip), old_values_BT + clip
        )
        bounded_BT = (near_BT - returns_BT).square()
    loss = aggregate(
        torch.maximum(plain_BT, bounded_BT) / 2,
        mask_BT,
        aggregation=aggregation,
        denominator=denominator,
    )
    metrics = {
        "value_clip_fraction": masked_mean(bounded_BT > plain_BT, mask_BT),
        "value_mean": masked_mean(values_BT, mask_BT),
        "value_squared_error": masked_mean(plain_BT, mask_BT),
    }
    return loss, detached(metrics)


def outcome_loss(
    values_BT: Tensor,
    right_BT: Tensor,
    *,
    mask_BT: Tensor,
    aggregation: Aggregation,
    denominator: Tensor | float,
) -> tuple[Tensor, Metrics]:
    """Compute the cross-entropy of ``sigmoid(mean V)`` with whether a sequence is right.

    Source: the token-level reward model of OREAL, arXiv 2502.06781.

    Args:
        values_BT: The critic's values, with gradient.
        right_BT: 1 at the tokens of sequences that are right, else 0.
        mask_BT: The valid tokens.
        aggregation: How tokens and sequences are averaged; all tokens bear their sequence's loss.
        denominator: Of the whole batch.

    Returns:
        The loss, a scalar; and metrics, means over the valid tokens: ``value_clip_fraction``, which
        is 0, ``value_mean``, and ``value_squared_error`` of the probability.

    """
    count_B = mask_BT.sum(-1).clamp(min=1)
    odds_B = torch.where(mask_BT.bool(), values_BT, 0.0).sum(-1) / count_B
    right_B = right_BT.amax(-1)
    loss_B = binary_cross_entropy_with_logits(odds_B, right_B, reduction="none")
    loss = aggregate(
        loss_B[:, None].expand_as(values_BT),
        mask_BT,
        aggregation=aggregation,
        denominator=denominator,
    )
    away_BT = (odds_B.sigmoid() - right_B).square()[:, None].expand_as(values_BT)
    metrics = {
        "value_clip_fraction": torch.zeros_like(loss),
        "value_mean": masked_mean(values_BT, mask_BT),
        "value_squared_error": masked_mean(away_BT, mask_BT),
    }
    return loss, detached(metrics)
