"""Deciding a claim on paired differences: intervals over seeds, equivalence, four outcomes."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from posttrain.learning.maths.intervals import Interval, student_quantile

Outcome = Literal["confirmed", "refuted", "undecided", "void"]
_MOST_SEEDS = 10_000


def paired_interval(differences_S: Tensor, *, confidence: float = 0.95) -> Interval:
    """Compute Student's interval of a mean of paired differences.

    ``mean +- t(S - 1) s / sqrt(S)`` with the sample deviation s. Source: Student, "The probable
    error of a mean", Biometrika 6, 1908.

    Args:
        differences_S: One difference for each seed, ours minus theirs.
        confidence: Chance that the interval is meant to hold the mean, between 0 and 1.

    Returns:
        Estimate and ends, scalars, float64. A single seed says nothing of the spread: its interval
        is infinite.

    Raises:
        ValueError: There is no difference.

    """
    if differences_S.numel() == 0:
        raise ValueError("an interval needs at least one difference")
    values_S = differences_S.double()
    mean = values_S.mean()
    if len(values_S) == 1:
        infinite = torch.full_like(mean, math.inf)
        return Interval(mean, -infinite, infinite)
    reach = student_quantile(len(values_S) - 1, confidence) * values_S.std() / len(values_S) ** 0.5
    return Interval(mean, mean - reach, mean + reach)


def decided(
    differences_S: Tensor,
    *,
    direction: Literal["higher", "lower", "not_worse", "equal"],
    margin: float,
    better: Literal["higher", "lower"] = "higher",
) -> Outcome:
    """Decide what was said of a difference beforehand.

    *Confirmed* where the 95% interval lies wholly where it was said to lie, *refuted* where wholly
    elsewhere, else *undecided*. ``higher``: beyond +margin; ``lower``: beyond -margin;
    ``not_worse``: beyond the margin on the worse side; ``equal``: within both, by two one-sided
    tests at 5% each, which is the 90% interval (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987).

    Args:
        differences_S: One difference for each seed, ours minus theirs.
        direction: What was said.
        margin: At least 0, in units of the metric.
        better: Which way `not_worse` looks.

    Returns:
        The outcome, never void.

    """
    low, high = paired_interval(differences_S)[1:]
    if direction == "equal":
        inner = paired_interval(differences_S, confidence=0.9)
        if inner.low > -margin and inner.high < margin:
            return "confirmed"
        return "refuted" if low >= margin or high <= -margin else "undecided"
    downward = direction == "lower" or (direction == "not_worse" and better == "lower")
    if downward:
        low, high = -high, -low
    threshold = -margin if direction == "not_worse" else margin
    if low > threshold:
        return "confirmed"
    return "refuted" if high < threshold else "undecided"


def conjunction(outcomes: Sequence[Outcome]) -> Outcome:
    """Decide several at once: confirmed if all are, refuted if one is.

    >>> conjunction(["confirmed", "undecided"]), conjunction(["refuted", "undecided"])
    ('undecided', 'refuted')

    Args:
        outcomes: At least one.

    Returns:
        One outcome for all; void where one is.

    """
    for outcome in ("void", "refuted", "undecided"):
        if outcome in outcomes:
            return outcome
    return "confirmed"


def seeds_enough(differences_S: Tensor, *, threshold: float) -> float:
    """Return how many seeds would decide, if they differed as these do.

    The least n with ``t(n - 1) s / sqrt(n) < |mean - threshold|``.

    Args:
        differences_S: One difference for each seed, at least two.
        threshold: Where the interval must not reach, such as the margin.

    Returns:
        A whole number; infinite where no number up to ten thousand is enough.

    """
    values_S = differences_S.double()
    away = abs(float(values_S.mean()) - threshold)
    spread = float(values_S.std())
    if away == 0.0:
        return math.inf
    if spread == 0.0:
        return 2.0
    # Normal at first: the t quantile is larger, so fewer are never enough.
    n = max(2, math.floor((1.959963984540054 * spread / away) ** 2))
    while n <= _MOST_SEEDS:
        if student_quantile(n - 1, 0.95) * spread / n**0.5 < away:
            return float(n)
        n += 1
    return math.inf


def bootstrap_interval(
    values_P: Tensor, *, seed: int, resamples: int = 2000, confidence: float = 0.95
) -> Interval:
    """Resample problems with replacement, for the interval of a mean over them.

    Percentile bootstrap; source: Efron, "Bootstrap methods: another look at the jackknife", Annals
    of Statistics 7, 1979.

    Args:
        values_P: One number for each problem, at least one.
        seed: Of the resampling.
        resamples: How often.
        confidence: Between 0 and 1.

    Returns:
        Estimate and ends, scalars, float64.

    """
    values_P = values_P.double()
    generator = torch.Generator().manual_seed(seed)
    index_RP = torch.randint(len(values_P), (resamples, len(values_P)), generator=generator)
    means_R = values_P[index_RP].mean(dim=1)
    tails = torch.tensor([(1 - confidence) / 2, (1 + confidence) / 2], dtype=torch.float64)
    low, high = torch.quantile(means_R, tails)
    return Interval(values_P.mean(), low, high)
