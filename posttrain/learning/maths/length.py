"""Rewards for the length of a completion."""

import torch
from torch import Tensor


def overlong_penalty(length_B: Tensor, *, limit: int, buffer: int, bounded: bool = True) -> Tensor:
    """0 up to ``limit - buffer``, then down by ``1 / buffer`` a token; to add to rewards. ``[B]``.

    -1 at the limit. Beyond it, -1 if ``bounded`` (DAPO's paper, arXiv 2503.14476; TRL, OpenRLHF),
    else the line goes on (verl, AReaL, NeMo-RL): a completion cannot pass the limit unless the
    limit is below that of generation. ``buffer`` 0 gives 0 up to the limit, then -1 (-infinity if
    not bounded).

    Judge by the reward *without* it whether a group has any variance, as NeMo-RL does: else lengths
    alone make a solved problem look unsolved.
    """
    excess_B = (length_B - (limit - buffer)).clamp(min=0).float()
    penalty_B = torch.where(excess_B > 0, -excess_B / buffer, 0.0)
    return penalty_B.clamp(min=-1.0) if bounded else penalty_B
