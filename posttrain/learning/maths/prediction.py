"""How far a further value may lie from a few that were seen: Student's t, and its intervals."""

import math

import torch
from torch import Tensor

from posttrain.learning.maths.intervals import Interval

_BISECTIONS = 200


def student_coverage(t: float, degrees: int) -> float:
    """``P(-t < T < t)`` of Student's t with a whole number of degrees of freedom; t at least 0.

    With ``theta = atan(t / sqrt(degrees))`` a finite sum in its sine and cosine: for even degrees
    ``sin(1 + 1/2 cos^2 + 1*3/(2*4) cos^4 + ...)``, for odd ones
    ``2/pi (theta + sin(cos + 2/3 cos^3 + ...))``. Source: Abramowitz and Stegun 1964, 26.7.3 and
    26.7.4.
    """
    if degrees < 1:
        raise ValueError(f"degrees of freedom must be at least 1, not {degrees}")
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def student_quantile(confidence: float, degrees: int) -> float:
    """The t with ``P(-t < T < t) = confidence``; 4.302653 for 0.95 and 2 degrees of freedom."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}")
    low, high = 0.0, 1.0
    while student_coverage(high, degrees) < confidence:
        high *= 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if student_coverage(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def prediction_interval(values_N: Tensor, *, confidence: float = 0.95) -> Interval:
    """Where one more value of the same normal distribution lies. ``[N]``, N at least 2; scalars.

    ``mean +- t s sqrt(1 + 1/N)`` with N - 1 degrees of freedom. The estimate is the mean. Equal
    values give an interval of width 0. Source: Geisser 1993, "Predictive Inference".
    """
    return _around_the_mean(values_N, confidence, 1.0)


def mean_interval(values_N: Tensor, *, confidence: float = 0.95) -> Interval:
    """Where the mean of the distribution lies: ``mean +- t s / sqrt(N)``. ``[N]``, N at least 2.

    Source: Student 1908.
    """
    return _around_the_mean(values_N, confidence, 0.0)


def values_needed(spread: float, reach: float, *, confidence: float = 0.95) -> int:
    """The least N for which ``t s / sqrt(N)``, half of `mean_interval`, is at most `reach`.

    `spread` is the standard deviation s, `reach` is above 0; at least 2 values are always needed.
    Exact up to a hundred, and at most one in a hundred too many beyond.
    """
    if reach <= 0:
        raise ValueError(f"the reach must be above 0, not {reach}")
    num_values = 2
    while student_quantile(confidence, num_values - 1) * spread > reach * math.sqrt(num_values):
        # Beyond some hundred values t hardly changes: go there in strides.
        num_values += 1 + num_values // 100
    return num_values


def _around_the_mean(values_N: Tensor, confidence: float, own: float) -> Interval:
    num_values = values_N.numel()
    if num_values < 2:
        raise ValueError(f"a spread needs at least two values, not {num_values}")
    values_N = values_N.double()
    mean, spread = values_N.mean(), values_N.std()
    if bool((values_N == values_N[0]).all()):
        return Interval(values_N[0], values_N[0], values_N[0])
    reach = student_quantile(confidence, num_values - 1) * spread * math.sqrt(own + 1 / num_values)
    return Interval(mean, mean - reach, mean + reach)


def spread(values_N: Tensor) -> float:
    """The standard deviation from a sample, ``[N]`` with N at least 2; equal values give 0."""
    return float(torch.std(values_N.double()))
