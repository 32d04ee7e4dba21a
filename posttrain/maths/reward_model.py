"""The loss of a reward model on pairs of completions."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from posttrain.maths.reduce import Metrics, detached


def bradley_terry_loss(
    chosen_B: Tensor,
    rejected_B: Tensor,
    *,
    denominator: Tensor | float,
    margin_B: Tensor | None = None,
    centring: float = 0.0,
) -> tuple[Tensor, Metrics]:
    """``sum(-log sigmoid(c - r - margin) + centring (c + r)^2) / denominator``.

    Inputs: chosen_B: Rewards of the preferred completions. rejected_B: Rewards of the others.
        denominator: Number of pairs of the whole batch. margin_B: By how much the preferred one
        should win (Llama 2, arXiv 2307.09288). centring: Pulls the mean of each pair to 0, which
        the pairwise term leaves free (Eisenstein et
            al., arXiv 2312.09244; 0.01 there).

    Metrics, as means over these pairs: ``accuracy`` (a tie counts half, so a constant model has
    0.5), ``margin`` (c - r), ``chosen_reward``, ``rejected_reward``.

    Equal rewards without a margin give log 2 a pair. No pair gives 0.
    """
    gap_B = chosen_B - rejected_B
    loss_B = -logsigmoid(gap_B if margin_B is None else gap_B - margin_B)
    if centring:
        loss_B = loss_B + centring * (chosen_B + rejected_B).square()
    metrics = {
        "accuracy": pair_accuracy(gap_B),
        "margin": gap_B.sum() / max(len(gap_B), 1),
        "chosen_reward": chosen_B.sum() / max(len(gap_B), 1),
        "rejected_reward": rejected_B.sum() / max(len(gap_B), 1),
    }
    return loss_B.sum() / denominator, detached(metrics)


def pair_accuracy(gap_B: Tensor) -> Tensor:
    """Share of pairs whose gap has the right sign; a gap of 0 counts half; 0 pairs give 0."""
    return ((torch.sign(gap_B) + 1) / 2).sum() / max(len(gap_B), 1)
