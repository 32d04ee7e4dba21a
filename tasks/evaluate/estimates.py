"""Estimates over problems: each problem is one draw, however often it was sampled."""

from math import comb

import torch
from torch import Tensor

from posttrain.learning.maths.intervals import clustered_mean_interval, wilson_interval
from posttrain.learning.maths.pass_at_k import majority_vote
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


def at(k: int, estimate: Estimate) -> EstimateAt:
    """The estimate, for k samples."""
    return EstimateAt(k, estimate.value, estimate.low, estimate.high)


def best_of(rewards_PN: Tensor, correct_PN: Tensor, *, k: int) -> Tensor:
    """Chance that the best-rewarded of k samples is right, over all k-subsets of the N. `[P]`.

    With the samples by falling reward, the i-th (from 0) is the best of C(N-1-i, k-1) subsets out
    of C(N, k). Samples of equal reward share their places evenly. k = 1 is the mean; k = N is the
    best of all.
    """
    num_samples = rewards_PN.shape[1]
    weights_N = torch.tensor(
        [comb(num_samples - 1 - i, k - 1) / comb(num_samples, k) for i in range(num_samples)],
        dtype=torch.float64,
    )
    # Of a sample with `above` better ones and `equal` like it (itself included), the weight is
    # the mean of the weights of the places above .. above + equal - 1.
    cumulative = torch.cat([weights_N.new_zeros(1), weights_N.cumsum(0)])
    above_PN = (rewards_PN[:, None, :] > rewards_PN[:, :, None]).sum(-1)
    equal_PN = (rewards_PN[:, None, :] == rewards_PN[:, :, None]).sum(-1)
    share_PN = (cumulative[above_PN + equal_PN] - cumulative[above_PN]) / equal_PN
    return (share_PN * correct_PN).sum(-1)


def majority(answers: list[list[str | None]], correct_PN: Tensor) -> Tensor:
    """Whether the commonest stated answer of each problem is right; 0 where none is. `[P]`."""
    votes = [
        (problem, index, answer)
        for problem, given in enumerate(answers)
        for index, answer in enumerate(given)
        if answer is not None
    ]
    values_P = torch.zeros(len(answers), dtype=torch.float64)
    if not votes:
        return values_P
    problems, indices, stated = zip(*votes, strict=True)
    numbers = {answer: number for number, answer in enumerate(dict.fromkeys(stated))}
    problem_B = torch.tensor(problems)
    values_P[torch.unique(problem_B)] = majority_vote(
        torch.tensor([numbers[answer] for answer in stated]),
        correct_PN[problem_B, torch.tensor(indices)],
        problem_B,
    )
    return values_P
