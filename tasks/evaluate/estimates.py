"""Estimates over problems, with their intervals."""

import torch
from torch import Tensor

from posttrain.learning.maths.intervals import bounded_mean_interval
from tasks.evaluate.report import Estimate


def mean_of_problems(values_P: Tensor, *, lowest: float = 0.0, few: bool = False) -> Estimate:
    """Mean of per-problem values in `[lowest, 1]` with its 95% interval, cut to that range.

    Normal interval of the mean over problems (Miller, "Adding Error Bars to Evals", 2024), or
    Student's where there may be a `few` alone, as in a slice. Where
    all values are one and the same extreme it would have width 0, so the far end is that of
    Wilson's interval for as many agreeing problems.
    """
    problems_P = torch.arange(len(values_P))
    interval = bounded_mean_interval(values_P, problems_P, lowest=lowest, few=few)
    return Estimate(*map(float, interval))
