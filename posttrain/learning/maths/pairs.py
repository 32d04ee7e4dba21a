"""The loss of a reward model on pairs of completions, and what to report of any batch of pairs."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from posttrain.learning.maths.reduce import Metrics, detached


def weighted_sum(loss_B: Tensor, weight_B: Tensor | None) -> Tensor:
    """Add up the losses of pairs, each as often as its weight says.

    Args:
        loss_B: Of each pair.
        weight_B: How much each counts; None where all count 1.

    Returns:
        A scalar; its denominator is the sum of the weights of the whole batch.

    """
    return loss_B.sum() if weight_B is None else (weight_B * loss_B).sum()


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
    weight_B: Tensor | None = None,
    label_prob_B: Tensor | None = None,
) -> tuple[Tensor, Metrics]:
    """Compute ``sum(w (-q log sigmoid(c - r) - (1 - q) log sigmoid(r - c) + centering (c + r)^2))``
    by the denominator.

    Args:
        chosen_B: Rewards of the preferred completions.
        rejected_B: Rewards of the others.
        denominator: Number of pairs of the whole batch, or the sum of their weights.
        centering: Pulls the mean of each pair to 0, which the pairwise term leaves free (Eisenstein
            et al., arXiv 2312.09244; 0.01 there).
        weight_B: How much each pair counts, the w above; None where all count 1.
        label_prob_B: Probability that the preferred one is the better, the q above, which makes the
            loss a cross-entropy of soft labels; None where all are sure.

    Returns:
        The loss, a scalar; and the metrics of ``pairs.pair_metrics`` on these pairs. Equal rewards
        give log 2 a pair. No pair gives 0.

    """
    loss_B = -logsigmoid(chosen_B - rejected_B)
    if label_prob_B is not None:
        other_B = -logsigmoid(rejected_B - chosen_B)
        loss_B = label_prob_B * loss_B + (1 - label_prob_B) * other_B
    if centering:
        loss_B = loss_B + centering * (chosen_B + rejected_B).square()
    total = weighted_sum(loss_B, weight_B)
    return total / denominator, pair_metrics(chosen_B, rejected_B)
