"""Estimates over problems, with their intervals."""

import torch
from torch import Tensor

from posttrain.learning.maths.intervals import clustered_mean_interval, wilson_interval
from tasks.evaluate.report import Estimate


def mean_of_problems(values_P: Tensor, *, lowest: float = 0.0, few: bool = False) -> Estimate:
    """Mean of per-problem values in `[lowest, 1]` with its 95% interval, cut to that range.

    Normal interval of the mean over problems (Miller, "Adding Error Bars to Evals", 2024), or
    Student's where there may be a `few` alone, as in a slice. Where
    all values are one and the same extreme it would have width 0, so the far end is that of
    Wilson's interval for as many agreeing problems.
    """
    interval = clustered_mean_interval(values_P, torch.arange(len(values_P)), few=few)
    value, low, high = float(interval.estimate), float(interval.low), float(interval.high)
    if low == high and value in (lowest, 1.0):
        agreeing = torch.tensor(len(values_P))
        width = (1 - float(wilson_interval(agreeing, agreeing).low)) * (1 - lowest)
        low, high = value - width, value + width
    return Estimate(value, max(lowest, low), min(1.0, high))
