"""Estimates over problems: each problem is one draw, however often it was sampled."""

from collections.abc import Sequence
from dataclasses import astuple

import torch
from torch import Tensor

from posttrain.learning.maths.intervals import clustered_mean_interval, wilson_interval
from posttrain.learning.rollouts.strategies.base import DrawnSamples, Strategy
from tasks.evaluate.report import Estimate, EstimateAt


def mean_of_problems(values_P: Tensor, *, lowest: float = 0.0) -> Estimate:
    """Mean of per-problem values in `[lowest, 1]` with its 95% interval, cut to that range.

    Normal interval of the mean over problems (Miller, "Adding Error Bars to Evals", 2024). Where
    all values are one and the same extreme it would have width 0, so the far end is that of
    Wilson's interval for as many agreeing problems.
    """
    interval = clustered_mean_interval(values_P, torch.arange(len(values_P)))
    value, low, high = float(interval.estimate), float(interval.low), float(interval.high)
    if low == high and value in (lowest, 1.0):
        agreeing = torch.tensor(len(values_P))
        width = (1 - float(wilson_interval(agreeing, agreeing).low)) * (1 - lowest)
        low, high = value - width, value + width
    return Estimate(value, max(lowest, low), min(1.0, high))


def estimates_of(
    strategy: Strategy, samples: DrawnSamples, wanted: Sequence[int]
) -> tuple[EstimateAt, ...]:
    """Grade a strategy on a policy's samples.

    Args:
        strategy: What makes one answer of several samples.
        samples: What was drawn.
        wanted: The k that the recipe asks for, rising.

    Returns:
        An estimate for each of the strategy's budgets; none where it needs a reward model and
        there is none.

    """
    if "reward_model" in strategy.NEEDS and samples.rewards_PN is None:
        return ()
    ks = strategy.budgets(samples, wanted)
    means = [mean_of_problems(strategy.solved(samples, k)) for k in ks]
    return tuple(EstimateAt(k, *astuple(mean)) for k, mean in zip(ks, means, strict=True))
