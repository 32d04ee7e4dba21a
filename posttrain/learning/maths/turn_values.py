"""What the values of turns are drawn to: bootstrapped targets, expectiles, options.

A row is an episode, with its turns from the left; `taken_BK` says how many it has. After the last
one nothing follows, also where it was cut off: that is the task as the rest of RL poses it here.
"""

import torch
from torch import Tensor


def later(values_BKH: Tensor, taken_BK: Tensor, *, turns: int = 1) -> Tensor:
    """Look some turns ahead.

    Args:
        values_BKH: One number per turn and head.
        taken_BK: True where an episode has a turn.
        turns: How far, at least 1.

    Returns:
        At each turn the number of that later one, ``[B, K, H]``; 0 where the episode is over by
        then.

    """
    known_BKH = torch.where(taken_BK[..., None], values_BKH, 0.0)
    beyond_BKH = torch.zeros_like(known_BKH[:, :turns])
    return torch.cat([known_BKH[:, turns:], beyond_BKH], dim=1)[:, : known_BKH.shape[1]]


def td_targets(rewards_BK: Tensor, begun_BKH: Tensor, *, taken_BK: Tensor, gamma: float) -> Tensor:
    """Compute ``r + gamma V'``, V' of the next turn's situation.

    Source: ArCHer, arXiv 2402.19446, section 3.2; IQL, arXiv 2110.06169, equation 6.

    Args:
        rewards_BK: What each turn was paid.
        begun_BKH: Values of the situations in which turns begin.
        taken_BK: True where an episode has a turn.
        gamma: Discount by turns.

    Returns:
        A target for each turn and head, ``[B, K, H]``.

    """
    return rewards_BK[..., None] + gamma * later(begun_BKH, taken_BK)


def option_targets(
    rewards_BK: Tensor, begun_BKH: Tensor, *, taken_BK: Tensor, turns: int, gamma: float
) -> Tensor:
    """Compute ``R + gamma V'``: what an option's turns were paid, and V' of the situation after it.

    Source: the option-aware target of OTA, arXiv 2505.12737, where an option has one discount
    however long it is.

    Args:
        rewards_BK: What each turn was paid.
        begun_BKH: Values of the situations in which turns begin.
        taken_BK: True where an episode has a turn.
        turns: Turns of an option; with 1 it is `td_targets`.
        gamma: Discount by options.

    Returns:
        A target for the option that each turn begins, by head, ``[B, K, H]``.

    """
    paid_BK1 = torch.where(taken_BK, rewards_BK, 0.0)[..., None]
    within = [paid_BK1, *(later(paid_BK1, taken_BK, turns=ahead) for ahead in range(1, turns))]
    return torch.stack(within).sum(0) + gamma * later(begun_BKH, taken_BK, turns=turns)


def expectile_loss(above: Tensor, *, expectile: float, side: Tensor | None = None) -> Tensor:
    """Weigh squares by their side: ``|expectile - 1(side < 0)| above^2``.

    Its least value is at the expectile: 0.5 gives the mean, near 1 the largest. Source: IQL, arXiv
    2110.06169, equation 4.

    Args:
        above: Target less value, with gradient.
        expectile: Between 0 and 1.
        side: Whose sign says the side, without gradient; None for that of `above`.

    Returns:
        A loss for each entry.

    """
    below = (above.detach() if side is None else side) < 0
    return torch.where(below, 1 - expectile, expectile) * above.square()
