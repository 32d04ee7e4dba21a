"""Ranks, and how far two orders agree."""

import math

import torch
from torch import Tensor


def ranks(values_N: Tensor) -> Tensor:
    """Rank values from 0; equal ones share the mean of their ranks.

    >>> ranks(torch.tensor([3.0, 1.0, 3.0])).tolist()
    [1.5, 0.0, 1.5]

    Args:
        values_N: Numbers ``[N]``; infinite ones are allowed.

    Returns:
        Float64 ranks ``[N]``.

    """
    below_N = torch.gt(values_N[:, None], values_N[None]).sum(-1)
    equal_N = torch.eq(values_N[:, None], values_N[None]).sum(-1)
    return below_N.double() + (equal_N.double() - 1) / 2


def rank_correlation(one_N: Tensor, other_N: Tensor) -> float | None:
    """Compute Spearman's correlation of two rows of values.

    >>> rank_correlation(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([3.0, 2.0, 1.0]))
    -1.0

    Args:
        one_N: Numbers ``[N]``.
        other_N: As many.

    Returns:
        From -1 to 1; None where one of the two is a single value throughout.

    """
    centered = [ranks(each) - (len(each) - 1) / 2 for each in (one_N, other_N)]
    norms = [float(each.square().sum()) for each in centered]
    if not min(norms):
        return None
    return float((centered[0] * centered[1]).sum()) / math.sqrt(norms[0] * norms[1])
