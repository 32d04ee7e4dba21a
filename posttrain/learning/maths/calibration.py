"""Do predicted probabilities mean what they say?"""

import torch
from torch import Tensor


def brier_score(probability_N: Tensor, outcome_N: Tensor) -> Tensor:
    """``mean((p - y)^2)``, y 0 or 1; 0 is perfect, 0.25 is always saying 1/2. A scalar, float64.

    Source: Brier 1950.
    """
    return (probability_N.double() - outcome_N.double()).square().mean()


def reliability_table(
    probability_N: Tensor, outcome_N: Tensor, *, num_bins: int = 10
) -> tuple[Tensor, Tensor, Tensor]:
    """Items by predicted probability, in equal bins: ``(count, mean p, rate of y)``, ``[bins]``.

    Bin b holds ``b / bins < p <= (b + 1) / bins``, and the first one p = 0 too. Means and rates of
    an empty bin are 0.
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
    """``sum over bins (count / N) |rate of y - mean p|``, equal-width bins. A scalar, float64.

    Source: Guo et al., arXiv 1706.04599. Depends on the number of bins, and is biased upwards for
    few items: report it with N. Constant predictions equal to the base rate give 0, so read it
    beside AUROC.
    """
    count, claimed, happened = reliability_table(probability_N, outcome_N, num_bins=num_bins)
    return (count * (happened - claimed).abs()).sum() / count.sum()
