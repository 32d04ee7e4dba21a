"""The loss of a reward model on pairs of completions, and what to report of any batch of pairs."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

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


def bradley_terry_loss(
    chosen_B: Tensor,
    rejected_B: Tensor,
    *,
    denominator: Tensor | float,
    centering: float = 0.0,
) -> tuple[Tensor, Metrics]:
    """Compute ``sum(-log sigmoid(c - r) + centering (c + r)^2) / denominator``.

    Args:
        chosen_B: Rewards of the preferred completions.
        rejected_B: Rewards of the others.
        denominator: Number of pairs of the whole batch.
        centering: Pulls the mean of each pair to 0, which the pairwise term leaves free (Eisenstein
            et al., arXiv 2312.09244; 0.01 there).

    Returns:
        The loss, a scalar; and the metrics of ``pairs.pair_metrics`` on these pairs. Equal rewards
        give log 2 a pair. No pair gives 0.

    """
    loss_B = -logsigmoid(chosen_B - rejected_B)
    if centering:
        loss_B = loss_B + centering * (chosen_B + rejected_B).square()
    return loss_B.sum() / denominator, pair_metrics(chosen_B, rejected_B)
