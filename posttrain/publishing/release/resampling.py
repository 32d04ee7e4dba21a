"""How gates were decided before `statistics`: the claims of such releases are checked by it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from posttrain.publishing.release.gates.metrics import MetricGate
from posttrain.publishing.release.results import Results
from posttrain.publishing.release.statistics import paired, problem_values, sign_test

RESAMPLED = frozenset({"low", "high", "p_value", "p_flipped"})
"""Figures that random numbers have a part in, but for the p-value of the exact sign test."""

_RESAMPLES = 10_000
# Numbers that a resampling holds at once: 40 MB of them.
_MOST_NUMBERS = 5_000_000


def resampled_figures(gate: MetricGate, ours: Results, theirs: Results | None) -> dict[str, float]:
    """Return the figures of a gate on a metric, by bootstrap and flipped signs."""
    settings = gate.model_dump()
    if theirs is None or "against" not in settings:
        return resampled_estimate(gate.metric, ours, gate.confidence)
    differences_P, figures = paired(gate.metric, ours, theirs)
    low, high, means_R = bootstrap(differences_P, gate.confidence)
    crossings = min(int((means_R <= 0).sum()), int((means_R >= 0).sum()))
    # Koehn 2004; Davison and Hinkley 1997, section 4.2.
    p_value = min(1.0, 2 * (1 + crossings) / (1 + len(means_R)))
    figures |= {"low": low, "high": high, "p_value": p_value}
    if settings.get("test") == "sign":
        figures["p_value"] = sign_test(differences_P - settings["margin"])
    elif "test" in settings:
        figures["p_flipped"] = sign_flip_test(differences_P - settings["margin"])
    return figures


def resampled_estimate(metric: str, results: Results, confidence: float) -> dict[str, float]:
    """Return a metric with its bootstrap interval over problems."""
    values_P = problem_values(metric, results.pooled())
    low, high, _ = bootstrap(values_P, confidence)
    if low == high and low in (0.0, 1.0):
        import torch

        from posttrain.learning.maths.intervals import wilson_interval

        # All solved, or none: resampling shows no spread, Wilson's interval does.
        solved, asked = torch.tensor(values_P.sum()), torch.tensor(len(values_P))
        wilson = wilson_interval(solved, asked, confidence=confidence)
        low, high = float(wilson.low), float(wilson.high)
    return {
        "value": float(values_P.mean()),
        "low": low,
        "high": high,
        "problems": float(len(values_P)),
        "seeds": float(len(results.by_seed)),
    }


def sign_flip_test(differences_P: np.ndarray) -> float:
    """Return the two-sided p-value of "each difference is as likely as its negative".

    At any number of problems the chance of ``p <= a`` is at most a, which a bootstrap reaches only
    with many. All assignments of signs are tried where there are few of them, else 10,000 drawn
    from seed 0. Source: Fisher 1935, "The Design of Experiments", section 21; Dwass 1957.
    """
    from scipy.stats import permutation_test

    tested = permutation_test(
        (differences_P,),
        np.mean,
        permutation_type="samples",
        n_resamples=_RESAMPLES,
        batch=_batch(differences_P),
        rng=0,
    )
    return float(tested.pvalue)


def bootstrap(values_P: np.ndarray, confidence: float) -> tuple[float, float, np.ndarray]:
    """Resample problems with replacement; the same values give the same answer.

    Args:
        values_P: One number per problem.
        confidence: Chance that the interval is meant to hold the mean, between 0 and 1.

    Returns:
        The ends of the percentile interval of the mean (Efron 1979), and the resampled means.

    """
    from scipy.stats import bootstrap as resample

    found: Any = resample(
        (values_P,),
        np.mean,
        n_resamples=_RESAMPLES,
        batch=_batch(values_P),
        confidence_level=confidence,
        method="percentile",
        rng=0,
    )
    interval = found.confidence_interval
    return float(interval.low), float(interval.high), found.bootstrap_distribution


def monte_carlo_tolerance(name: str, figures: Mapping[str, float], confidence: float) -> float:
    """Return how far other random numbers may move a resampled figure, and hardly ever do.

    Five standard deviations of the difference of two draws of R resamples. The q-quantile of a
    normal distribution has the deviation ``sqrt(q (1 - q) / R) / density`` (Mosteller 1946), which
    at 95% is 0.7% of the interval's width, so 5% of it are allowed; with it one problem's weight,
    as means of few problems move in steps. A two-sided p-value from R draws has at most
    ``2 sqrt(p / 2R)``, and ten of the draws are allowed where it is next to 0.

    Args:
        name: `low` or `high`, the ends of the interval; else a p-value.
        figures: All figures of the gate.
        confidence: Of the interval, between 0 and 1.

    Returns:
        The largest difference that is allowed.

    """
    from scipy.stats import norm

    if name not in ("low", "high"):
        p_value = figures[name]
        return 5 * math.sqrt(2) * math.sqrt(2 * p_value / _RESAMPLES) + 10 / _RESAMPLES
    tail = (1 - confidence) / 2
    end = float(norm.ppf(1 - tail))
    deviation = math.sqrt(tail * (1 - tail) / _RESAMPLES) / float(norm.pdf(end)) / (2 * end)
    width = figures["high"] - figures["low"]
    return 5 * math.sqrt(2) * deviation * width + 1 / figures["problems"]


def _batch(values_P: np.ndarray) -> int:
    return max(1, _MOST_NUMBERS // len(values_P))
