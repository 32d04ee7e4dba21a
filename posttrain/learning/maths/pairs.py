"""What to report of a batch of pairs."""

import torch
from torch import Tensor

from posttrain.learning.maths.reduce import Metrics, detached


def pair_accuracy(gap_B: Tensor) -> Tensor:
    """Share of pairs whose gap has the right sign; a gap of 0 counts half; 0 pairs give 0."""
    return ((torch.sign(gap_B) + 1) / 2).sum() / max(len(gap_B), 1)


def pair_metrics(chosen_reward_B: Tensor, rejected_reward_B: Tensor) -> Metrics:
    """Average what tells how pairs fare.

    Args:
        chosen_reward_B: Reward of the preferred completion of each pair.
        rejected_reward_B: Reward of the other one.

    Returns:
        Means over the pairs, detached, 0 of no pair: ``accuracy`` (a tie counts half, so a constant
        model has 0.5), ``margin`` (chosen - rejected), ``chosen_reward``, ``rejected_reward``.

    """
    num_pairs = max(len(chosen_reward_B), 1)
    return detached(
        {
            "accuracy": pair_accuracy(chosen_reward_B - rejected_reward_B),
            "margin": (chosen_reward_B - rejected_reward_B).sum() / num_pairs,
            "chosen_reward": chosen_reward_B.sum() / num_pairs,
            "rejected_reward": rejected_reward_B.sum() / num_pairs,
        }
    )
