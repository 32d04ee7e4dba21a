"""What is known of the turns of a generation's rollouts, as tensors."""

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from posttrain.learning.rl.rollout import Rollout


def turn_columns(
    rollouts: Sequence[Rollout], rewards_B: Tensor, mask_BT: Tensor, by_token_BT: Tensor | None
) -> dict[str, Tensor]:
    """Lay out the turn of each drawn token, from 0, and each turn's reward.

    What its own tokens are paid goes to a turn, and all the rest to the last one.

    Args:
        rollouts: The B rollouts.
        rewards_B: Of each, less what its tokens are paid by themselves.
        mask_BT: Their drawn tokens, left-aligned.
        by_token_BT: What each token is paid by itself, if anything.

    Returns:
        `turn_BT` and `turn_rewards_BK` of a `RolloutBatch`.

    """
    turn_BT = torch.full(mask_BT.shape, -1)
    turns = [
        [span.turn for span in rollout.spans if span.drawn for _ in range(span.begin, span.end)]
        for rollout in rollouts
    ]
    turn_BT[mask_BT] = torch.tensor([turn for row in turns for turn in row])
    # A rollout without any drawn token has a turn in which nothing was said.
    last_B = turn_BT.amax(-1, keepdim=True).clamp(min=0)
    rewards_BK = rewards_B.new_zeros(len(rollouts), int(last_B.max()) + 1)
    rewards_BK = rewards_BK.scatter(1, last_B, rewards_B[:, None])
    if by_token_BT is not None:
        rewards_BK = rewards_BK.scatter_add(1, turn_BT.clamp(min=0), by_token_BT)
    return {"turn_BT": turn_BT, "turn_rewards_BK": rewards_BK}


def state_column(rollouts: Sequence[Rollout]) -> Tensor:
    """Number the situations in which turns were spoken: equal keys, equal numbers. ``[B, K]``."""
    keys = [[key for _, key in rollout.turns] for rollout in rollouts]
    if any(not key for row in keys for key in row) or not any(keys):
        raise ValueError(
            "credit by state needs an environment that names its situations, and this one gave no"
            " `key`; take like: turn, or an environment that does"
        )
    numbers = {key: place for place, key in enumerate(dict.fromkeys(chain.from_iterable(keys)))}
    width = max(len(row) for row in keys)
    rows = [[*(numbers[key] for key in row), *[-1] * (width - len(row))] for row in keys]
    return torch.tensor(rows)
