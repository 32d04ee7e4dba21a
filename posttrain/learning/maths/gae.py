"""Advantages from a critic and returns from rewards, over rollouts with observations in between.

A masked token (a tool's answer, padding) is not an action: the recursions carry their state over it
unchanged, so it costs no discount and the critic's value there is never read.
"""

import torch
from torch import Tensor


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
    gaps all agree. ``whitening.whiten`` is the usual next step.

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
