"""Credit by turns: from the advantage of each turn of a rollout to that of its tokens."""

import torch
from torch import Tensor


def spread_turns(advantages_BK: Tensor, turn_BT: Tensor) -> Tensor:
    """Give each token the advantage of its turn. ``[B, T]``.

    ``turn_BT`` holds the turn of each token, from 0, and a negative number at tokens of no turn
    (prompt, observations, padding), which get 0. The advantages of turns come from
    ``group_relative`` over the flattened turns with ``segments.joint_ids(problem, turn)`` as
    groups, or over states (GiGPO, arXiv 2505.10978, adds the episode's own advantage to it).
    """
    spread_BT = advantages_BK.gather(1, turn_BT.clamp(min=0))
    return torch.where(turn_BT >= 0, spread_BT, 0.0)
