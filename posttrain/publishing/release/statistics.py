"""Means of per-problem results, with bounds that hold at every number of problems."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from posttrain.publishing.release.results import Counts, Results

if TYPE_CHECKING:
    import numpy as np

STATISTICS = 2
"""Version of the rules that gates decide by; releases that state none were resampled."""

# Where the integrand of `chance_at_most` is cut off, and what its steps must not exceed.
_NEGLIGIBLE = 1e-15
_WIDEST_STEP = 0.1


def estimates(results: Results, *, confidence: float = 0.95) -> dict[str, dict[str, float]]:
    """pass@k of a policy with intervals, for every k of 1, 2, 4 ... that there are samples for."""
    found = {}
    k = 1
    while k <= fewest_samples(results):
        found[f"pass_at_{k}"] = estimate(f"pass_at_{k}", results, confidence)
        k *= 2
    return found


def fewest_samples(results: Results) -> int:
    """Samples of the problem that has the fewest; 0 without problems."""
    return min((taken for _, taken in results.pooled().values()), default=0)


def estimate(metric: str, results: Results, confidence: float) -> dict[str, float]:
    """A metric with its interval over problems."""
    values_P = problem_values(metric, results.pooled())
    low, high = interval(values_P, confidence, lowest=0.0, highest=1.0)
    return {
        "value": float(values_P.mean()),
        "low": low,
        "high": high,
        "problems": float(len(values_P)),
        "seeds": float(len(results.by_seed)),
    }


def compare_results(
    metric: str, ours: Results, theirs: Results, confidence: float
) -> "tuple[np.ndarray, dict[str, float]]":
    """Differences by problem, and their mean with its interval and two-sided p-value."""
    differences_P, figures = paired(metric, ours, theirs)
    low, high = interval(differences_P, confidence, lowest=-1.0, highest=1.0)
    tails = (chance_at_most(0.0, sign * differences_P, lowest=-1.0) for sign in (1, -1))
    figures |= {"low": low, "high": high, "p_value": min(1.0, 2 * min(tails))}
    return differences_P, figures


def paired(metric: str, ours: Results, theirs: Results) -> "tuple[np.ndarray, dict[str, float]]":
    """Differences by problem, and the figures that no statistics decide."""
    first_P = problem_values(metric, ours.pooled())
    second_P = problem_values(metric, theirs.pooled())
    differences_P = first_P - second_P
    return differences_P, {
        "value": float(first_P.mean()),
        "against": float(second_P.mean()),
        "difference": float(differences_P.mean()),
        "problems": float(len(first_P)),
        "seeds": float(min(len(ours.by_seed), len(theirs.by_seed))),
    }


def problem_values(metric: str, pooled: Mapping[str, Counts]) -> "np.ndarray":
    """The metric of each problem, by id. `[P]`, float64."""
    import torch

    from posttrain.learning.maths.pass_at_k import pass_at_k

    right_P = torch.tensor([right for right, _ in pooled.values()], dtype=torch.float64)
    taken_P = torch.tensor([taken for _, taken in pooled.values()], dtype=torch.float64)
    k = int(metric.removeprefix("pass_at_"))
    values_P: np.ndarray = pass_at_k(right_P, taken_P, k=k).numpy()
    return values_P


def sign_test(differences_P: "np.ndarray") -> float:
    """Return the two-sided p-value of "positive as often as negative"; zeros are left out.

    On differences of right and wrong this is McNemar's exact test (McNemar 1947). No difference at
    all gives 1.
    """
    from scipy.stats import binomtest

    wins, losses = int((differences_P > 0).sum()), int((differences_P < 0).sum())
    return float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0


def interval(
    values_P: "np.ndarray", confidence: float, *, lowest: float, highest: float
) -> tuple[float, float]:
    """Return the ends of an interval that holds the mean of the population of problems.

    Each end fails in at most ``(1 - confidence) / 2`` of all samples of problems, of any number and
    from any population between `lowest` and `highest`. Of rights and wrongs it is the interval of
    Clopper and Pearson (1934).

    Args:
        values_P: One number per problem.
        confidence: Of the two-sided interval.
        lowest: Least value that a problem can have.
        highest: Greatest value that a problem can have.

    Returns:
        The lower and the upper end.

    """
    tail = (1 - confidence) / 2
    low = lower_bound(values_P, tail, lowest=lowest)
    return low, -lower_bound(-values_P, tail, lowest=-highest)


def lower_bound(values_P: "np.ndarray", tail: float, *, lowest: float) -> float:
    r"""Bound the mean of a population from below by a sample of it.

    The ``tail`` quantile of ``D_0 lowest + D_1 x_1 + ... + D_P x_P`` with D uniform on the simplex:
    what resampling gives once one more problem, as bad as a problem can be, may have gone unseen.
    Proposed by Gaffke (2005, Math. Methods Statist. 14), rewritten for bounded values by
    Learned-Miller and Thomas (arXiv 1905.06208), who conjecture that it fails at most as often as
    stated; Vlassis and Thomas (arXiv 2607.08415) prove it for any sample size and population.
    `benchmarks.reliability.gates` checks it by weighing every outcome of rights and wrongs, and by
    draws of problems and samples where there are more values.

    Args:
        values_P: One number per problem.
        tail: Chance with which the bound may exceed the mean.
        lowest: Least value that a problem can have.

    Returns:
        The bound, at least `lowest`.

    >>> import numpy as np
    >>> round(lower_bound(np.ones(20), 0.025, lowest=0.0), 4)  # 0.025 ** (1 / 20)
    0.8316

    """
    from scipy.optimize import brentq

    top = float(values_P.max())
    if top <= lowest:
        return lowest
    excess = brentq(
        lambda at: chance_at_most(at, values_P, lowest=lowest) - tail, lowest, top, xtol=1e-13
    )
    return float(excess)


def problems_needed(bound: float, tail: float, *, best: float, lowest: float) -> float:
    """Return how many problems the lower bound needs to reach a value when all are at their best.

    Of P values that all are `best` it is ``lowest + (best - lowest) tail^(1 / P)``, so P is
    ``log(tail) / log((bound - lowest) / (best - lowest))`` or more.

    Args:
        bound: Value that the lower bound is to reach.
        tail: Chance with which the bound may exceed the mean.
        best: What every problem shows.
        lowest: Least value that a problem can have.

    Returns:
        A whole number; infinite where none is enough.

    >>> problems_needed(-0.02, 0.025, best=0.0, lowest=-1.0)
    183.0

    """
    if bound >= best:
        return math.inf
    share = (bound - lowest) / (best - lowest)
    return 1.0 if share <= tail else float(math.ceil(math.log(tail) / math.log(share)))


def chance_at_most(at: float, values_P: "np.ndarray", *, lowest: float) -> float:
    """Return ``P(D_0 lowest + D_1 x_1 + ... + D_P x_P <= at)`` for D uniform on the simplex.

    As D is a vector of exponential numbers over their sum, this is the chance that a weighted sum
    of gamma numbers is not positive, which Imhof's integral gives (1961, Biometrika 48, equation
    3.2), here over the logarithm of its variable, where the trapezoidal rule is exact to about 12
    digits. It is also the p-value of "the mean is at most `at`".

    Args:
        at: Mean that is asked about.
        values_P: One number per problem, at least `lowest`.
        lowest: Least value that a problem can have.

    Returns:
        The chance.

    """
    import numpy as np

    values_V, count_V = np.unique(np.append(values_P, lowest), return_counts=True)
    weights_V = values_V - at
    if (weights_V >= 0).all() or (weights_V <= 0).all():
        return float(weights_V.max() <= 0)
    scale = math.sqrt(float(count_V @ weights_V**2))
    left = math.log(_NEGLIGIBLE / float(count_V @ abs(weights_V)))
    right = -math.log(scale)

    while 0.5 * np.log1p((math.exp(right) * weights_V) ** 2) @ count_V < -math.log(_NEGLIGIBLE):
        right += 0.5
    step = min(_WIDEST_STEP, 0.5 / math.sqrt(len(values_P) + 1))
    log_u_N = np.linspace(left, right, math.ceil((right - left) / step))
    angle_NV = np.multiply.outer(np.exp(log_u_N), weights_V)
    phase_N = np.arctan(angle_NV) @ count_V
    heights_N = np.sin(phase_N) * np.exp(-0.5 * np.log1p(angle_NV**2) @ count_V)
    area = float(np.trapezoid(heights_N, log_u_N))
    return min(1.0, max(0.0, 0.5 - area / math.pi))
