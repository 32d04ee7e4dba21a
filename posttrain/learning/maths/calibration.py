"""How far stated probabilities are from what happened."""

import torch
from torch import Tensor


def brier_score(probability_N: Tensor, outcome_N: Tensor) -> Tensor:
    """Average the squared error of probabilities, ``mean((p - y)^2)``; Brier 1950.

    Args:
        probability_N: Predicted probabilities of y = 1.
        outcome_N: What happened, 0 or 1.

    Returns:
        A scalar, float64: 0 is perfect, 0.25 is always saying 1/2.

    """
    return (probability_N.double() - outcome_N.double()).square().mean()


def reliability_table(
    probability_N: Tensor, outcome_N: Tensor, *, num_bins: int = 10
) -> tuple[Tensor, Tensor, Tensor]:
    """Sort items by predicted probability into equal bins.

    Bin b holds ``b / bins < p <= (b + 1) / bins``, and the first one p = 0 too.

    Args:
        probability_N: Predicted probabilities of y = 1.
        outcome_N: What happened, 0 or 1.
        num_bins: Number of bins of equal width.

    Returns:
        Count, mean p and rate of y of each bin, ``[bins]`` each, float64. Means and rates of an
        empty bin are 0.

    """
    probability_N, outcome_N = probability_N.double(), outcome_N.double()
    bin_N = ((probability_N * num_bins).ceil().long() - 1).clamp(0, num_bins - 1)
    count = torch.bincount(bin_N, minlength=num_bins).double()
    claimed = torch.zeros_like(count).index_add(0, bin_N, probability_N) / count.clamp(min=1)
    happened = torch.zeros_like(count).index_add(0, bin_N, outcome_N) / count.clamp(min=1)
    return count, claimed, happened


def expected_calibration_error(
    probability_N: Tensor, outcome_N: Tensor, *, num_bins: int = 10
) -> Tensor:
    """Average what probabilities are off by, ``sum over bins (count / N) |rate of y - mean p|``.

    Source: Guo et al., arXiv 1706.04599. Depends on the number of bins, and is biased upwards for
    few items: report it with N. Constant predictions equal to the base rate give 0, so read it
    beside AUROC.

    Args:
        probability_N: Predicted probabilities of y = 1.
        outcome_N: What happened, 0 or 1.
        num_bins: Number of bins of equal width.

    Returns:
        A scalar between 0 and 1, float64.

    """
    count, claimed, happened = reliability_table(probability_N, outcome_N, num_bins=num_bins)
    return (count * (happened - claimed).abs()).sum() / count.sum()
