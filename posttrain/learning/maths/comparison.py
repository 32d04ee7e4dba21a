"""Is one model better than another? Tests on the same items, item by item."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from posttrain.learning.maths.intervals import (
    Interval,
    bootstrap_means,
    clustered_mean_interval,
    percentile_interval,
)

# Random signs that are held at once: 40 MB of them.
_MOST_NUMBERS = 5_000_000


class Comparison(NamedTuple):
    """Mean difference with its interval, and the two-sided p-value of "no difference"."""

    difference: Interval
    p_value: float


def paired_comparison(
    first_N: Tensor, second_N: Tensor, cluster_N: Tensor, *, confidence: float = 0.95
) -> Comparison:
    """``mean(first - second)`` over the same items, clustered, with a normal p-value.

    Taking differences item by item removes the difficulty of the items from the variance (arXiv
    2411.00640, section 4.2). The scores are per item: the mean over its samples where there are
    several.

    Equal scores throughout give difference 0, interval 0 to 0 and p 1; one cluster gives p 1.
    """
    difference = clustered_mean_interval(first_N - second_N, cluster_N, confidence=confidence)
    one_sigma = clustered_mean_interval(
        first_N - second_N, cluster_N, confidence=math.erf(0.5**0.5)
    )
    error = float(one_sigma.high - one_sigma.estimate)
    if error == 0:
        return Comparison(difference, 1.0 if float(difference.estimate) == 0 else 0.0)
    return Comparison(difference, math.erfc(abs(float(difference.estimate)) / error / 2**0.5))


def paired_bootstrap(
    first_N: Tensor,
    second_N: Tensor,
    cluster_N: Tensor,
    *,
    generator: torch.Generator,
    num_resamples: int = 2000,
    confidence: float = 0.95,
) -> Comparison:
    """The same by resampling clusters: percentile interval, and p from the resamples across 0.

    ``p = 2 min((1 + #{<= 0}) / (1 + R), (1 + #{>= 0}) / (1 + R))``, at most 1; never 0, as R
    resamples cannot show less than 1 / (1 + R). Source: Koehn 2004; Davison and Hinkley 1997,
    section 4.2.
    """
    differences_N = (first_N - second_N).double()
    means_R = bootstrap_means(
        differences_N, cluster_N, num_resamples=num_resamples, generator=generator
    )
    crossings = min(int((means_R <= 0).sum()), int((means_R >= 0).sum()))
    p_value = min(1.0, 2 * (1 + crossings) / (1 + num_resamples))
    difference = percentile_interval(differences_N.mean(), means_R, confidence=confidence)
    return Comparison(difference, p_value)


def exact_sign_test(differences_N: Tensor) -> float:
    """Two-sided p-value of "a difference is as often positive as negative"; zeros are left out.

    ``min(1, 2 P(X <= min(wins, losses)))``, X binomial with chance 1/2. On differences of right and
    wrong, ``first.float() - second.float()``, this is McNemar's exact test (McNemar 1947), which
    asks only the items on which two models disagree. No difference at all gives 1.
    """
    wins, losses = int((differences_N > 0).sum()), int((differences_N < 0).sum())
    num_unequal = wins + losses
    # Exact integers: no binomial is too large for Python, and 2^n never underflows.
    tail = sum(math.comb(num_unequal, i) for i in range(min(wins, losses) + 1))
    return min(1.0, 2 * tail / int(2**num_unequal))


def sign_flip_test(
    differences_N: Tensor, *, generator: torch.Generator, num_resamples: int = 2000
) -> float:
    """Two-sided p-value of "each difference is as likely as its negative", over their mean.

    ``p = (1 + #{|mean of flipped| >= |mean|}) / (1 + R)`` over R random assignments of signs: at
    any number of items the chance of ``p <= a`` is at most a, which a bootstrap reaches only with
    many. Source: Fisher 1935, "The Design of Experiments", section 21; Dwass 1957 for random
    assignments.
    """
    magnitudes_N = differences_N.double().abs()
    observed = abs(float(differences_N.double().sum()))
    # Sums of the same numbers in another order must not count as smaller by their last digit.
    slack = 1e-9 * float(magnitudes_N.sum())
    extreme, left = 0, num_resamples
    while left > 0:
        rows = min(left, max(1, _MOST_NUMBERS // max(1, len(magnitudes_N))))
        signs = torch.randint(0, 2, (rows, len(magnitudes_N)), generator=generator) * 2 - 1
        extreme += int(((signs.double() @ magnitudes_N).abs() >= observed - slack).sum())
        left -= rows
    return (1 + extreme) / (1 + num_resamples)
