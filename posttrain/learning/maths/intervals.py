"""Confidence intervals of rates and of means, also where the items come in clusters."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from posttrain.learning.maths.segments import dense_ids, segment_sum

_RESAMPLES_AT_ONCE = 100


class Interval(NamedTuple):
    """An estimate with the ends of its confidence interval; tensors of one shape, float64."""

    estimate: Tensor
    low: Tensor
    high: Tensor


def _normal_quantile(confidence: float) -> float:
    """Return the z for which a normal Z has ``P(-z < Z < z) = confidence``."""
    return float(torch.special.ndtri(torch.tensor((1 + confidence) / 2, dtype=torch.float64)))


def student_quantile(degrees: int, confidence: float) -> float:
    """Return the t for which ``P(-t < T < t) = confidence``, T of Student's distribution.

    Args:
        degrees: Degrees of freedom, at least 1.
        confidence: Between 0 and 1.

    Returns:
        The quantile.

    """
    from scipy.stats import t

    return float(t.ppf((1 + confidence) / 2, degrees))


def wilson_interval(
    num_successes_N: Tensor, num_trials_N: Tensor, *, confidence: float = 0.95
) -> Interval:
    """Compute the score interval of a rate from independent trials.

    ``(p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)``. Source: Wilson 1927; it holds its
    level for few trials and for rates near 0 and 1, where mean +- 2 deviations has width 0.

    Args:
        num_successes_N: Successes of each rate.
        num_trials_N: Trials of each rate.
        confidence: Chance that the interval is meant to hold the rate, between 0 and 1.

    Returns:
        The estimate s / n and both ends, ``[N]`` each. 0 successes give low exactly 0, n successes
        give high exactly 1. No trial at all gives 0 to 1, with estimate NaN.

    """
    z = _normal_quantile(confidence)
    successes_N, trials_N = num_successes_N.double(), num_trials_N.double()
    # Multiplied out by n, so that 0 trials need no exception.
    center_N = successes_N + z**2 / 2
    variance_N = successes_N * (trials_N - successes_N) / trials_N.clamp(min=1) + z**2 / 4
    reach_N = z * variance_N.sqrt()
    low_N = ((center_N - reach_N) / (trials_N + z**2)).clamp(min=0)
    high_N = ((center_N + reach_N) / (trials_N + z**2)).clamp(max=1)
    return Interval(
        estimate=successes_N / trials_N,
        low=torch.where(successes_N == 0, 0.0, low_N),
        high=torch.where(successes_N == trials_N, 1.0, high_N),
    )


def clustered_mean_interval(values_N: Tensor, cluster_N: Tensor, *, few: bool = False) -> Interval:
    """Compute the mean of all values, with a 95% interval that knows that a cluster goes together.

    ``variance = C/(C-1) sum over clusters (sum over the cluster of (x - mean))^2 / N^2``. Clusters
    are the problems when each has several samples, or the passages that several questions share;
    give every value its own cluster for independent ones. Source: Miller, "Adding Error Bars to
    Evals", arXiv 2411.00640; the factor C/(C-1) is the usual small-sample correction.

    Args:
        values_N: The values, at least one.
        cluster_N: Integer id of the cluster of each value.
        few: True takes Student's quantile of C - 1 degrees of freedom in the place of the normal
            one, which holds too rarely where there are fewer than some 30 clusters: of 3, in 83 to
            86% in place of 95%.

    Returns:
        Estimate and ends, scalars. A single cluster says nothing of its spread: its interval is
        infinite.

    Raises:
        ValueError: There is no value.

    """
    if values_N.numel() == 0:
        raise ValueError("an interval needs at least one value")
    values_N = values_N.double()
    index_N, num_clusters = dense_ids(cluster_N)
    mean = values_N.mean()
    if num_clusters == 1:
        infinite = torch.full_like(mean, math.inf)
        return Interval(mean, -infinite, infinite)
    residual_C = segment_sum(values_N - mean, index_N, num_clusters)
    variance = residual_C.square().sum() / len(values_N) ** 2 * num_clusters / (num_clusters - 1)
    quantile = student_quantile(num_clusters - 1, 0.95) if few else _normal_quantile(0.95)
    reach = quantile * variance.sqrt()
    return Interval(mean, mean - reach, mean + reach)


def bounded_mean_interval(
    values_N: Tensor, cluster_N: Tensor, *, lowest: float = 0.0, few: bool = False
) -> Interval:
    """Compute the mean of values that have a range, with a 95% interval within that range.

    Where all values are one and the same end of it, `clustered_mean_interval` has width 0, however
    few they are: the other end is then that of Wilson's interval for as many agreeing clusters.

    Args:
        values_N: The values, in ``[lowest, 1]``, at least one.
        cluster_N: Integer id of the cluster of each value.
        lowest: Lower end of the range.
        few: As for `clustered_mean_interval`.

    Returns:
        Estimate and ends, scalars; of a single cluster the whole range, unless it agrees.

    Raises:
        ValueError: There is no value.

    """
    mean, low, high = clustered_mean_interval(values_N, cluster_N, few=few)
    if bool((values_N == lowest).all() or (values_N == 1.0).all()):
        _, num_clusters = dense_ids(cluster_N)
        agreeing = torch.tensor(num_clusters)
        width = (1 - wilson_interval(agreeing, agreeing).low) * (1 - lowest)
        low, high = mean - width, mean + width
    return Interval(mean, low.clamp(min=lowest), high.clamp(max=1.0))


def interquartile_mean(values_RS: Tensor) -> Tensor:
    """Average the middle half of the runs: a quarter of them, rounded down, is cut at either end.

    Source: Agarwal et al., arXiv 2108.13264, section 4.3; google-research/rliable, metrics.py
    (aggregate_iqm, a mean trimmed by 0.25).

    >>> interquartile_mean(torch.tensor([[9.0], [1.0], [2.0], [4.0]])).tolist()
    [3.0]

    Args:
        values_RS: R runs, anything behind; runs of several tasks count alike.

    Returns:
        The mean for each of the S columns; all axes but the first stay.

    """
    cut = len(values_RS) // 4
    return values_RS.sort(dim=0).values[cut : len(values_RS) - cut].mean(dim=0)


def stratified_interval(
    values_RS: Tensor,
    strata: Sequence[str],
    *,
    resamples: int,
    confidence: float,
    seed: int,
) -> Interval:
    """Compute the interquartile mean and its percentile interval.

    In each resample every stratum has as many runs as it has, drawn from its own with replacement;
    a run is drawn as a whole, at all of its steps.

    Source: Agarwal et al., arXiv 2108.13264, section 4.1 (stratified bootstrap over tasks).

    Args:
        values_RS: R runs at S steps.
        strata: Task of each run.
        resamples: Number of resamples.
        confidence: Chance that the interval is meant to hold the mean, between 0 and 1.
        seed: Of the resamples.

    Returns:
        Estimates and ends, ``[S]``; of one run for each task they are equal.

    """
    generator = torch.Generator().manual_seed(seed)
    values_RS = values_RS.double()
    places = [
        torch.tensor([at for at, each in enumerate(strata) if each == stratum])
        for stratum in dict.fromkeys(strata)
    ]
    means = []
    for begin in range(0, resamples, _RESAMPLES_AT_ONCE):
        count = min(_RESAMPLES_AT_ONCE, resamples - begin)
        drawn = [
            place[torch.randint(len(place), (len(place), count), generator=generator)]
            for place in places
        ]
        means.append(interquartile_mean(values_RS[torch.cat(drawn)]))
    means_BS = torch.cat(means)
    tail = (1 - confidence) / 2
    return Interval(
        interquartile_mean(values_RS), means_BS.quantile(tail, 0), means_BS.quantile(1 - tail, 0)
    )
