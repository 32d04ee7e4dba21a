"""Rewards for the length of a completion."""

import torch
from torch import Tensor


def overlong_penalty(length_B: Tensor, *, limit: int, buffer: int, bounded: bool = True) -> Tensor:
    """Penalize length: 0 up to ``limit - buffer``, then down by ``1 / buffer`` a token.

    Judge by the reward *without* it whether a group has any variance, as NeMo-RL does: else lengths
    alone make a solved problem look unsolved.

    Args:
        length_B: Tokens of each completion.
        limit: Tokens at which the penalty is -1.
        buffer: Tokens before the limit over which it grows. 0 gives 0 up to the limit, then -1
            (-infinity if not bounded).
        bounded: Beyond the limit, True stays at -1 (DAPO's paper, arXiv 2503.14476; TRL, OpenRLHF);
            False goes on (verl, AReaL, NeMo-RL). A completion cannot pass the limit unless the
            limit is below that of generation.

    Returns:
        What to add to the rewards, ``[B]``.

    """
    excess_B = (length_B - (limit - buffer)).clamp(min=0).float()
    penalty_B = torch.where(excess_B > 0, -excess_B / buffer, 0.0)
    return penalty_B.clamp(min=-1.0) if bounded else penalty_B
