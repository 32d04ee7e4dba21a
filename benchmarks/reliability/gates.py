"""How often a gate passes what it should refuse, at each number of problems.

    python -m benchmarks.reliability.gates --draws 1000 --out benchmarks/reliability/gates.json

Each row is a policy that is exactly at the edge: as good as the threshold and no better, worse by
the whole tolerance, not better at all. It may pass in 2.5 of 100 cases (half of what 95% leaves).
Where a problem is right or wrong, every possible outcome goes through the gate and is weighed by
the binomial; the other rows are drawn. The last rows say how often a policy passes that should.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from scipy.stats import binom

from posttrain.publishing.release.config import ImprovementGate, NoRegressionGate, ThresholdGate
from posttrain.publishing.release.gates.metrics import MetricGate
from posttrain.publishing.release.results import Results

PROBLEMS = (20, 50, 100, 200, 512)
SAMPLES, SEEDS = 8, 3
REFUSED = "refused"
# A pair of true rates per problem, of the released policy and of the other one. `[P]`, `[P]`
Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def main() -> None:
    options = _options()
    report = {"problems": options.problems, "rows": {}}
    if options.out and options.out.is_file():
        report = json.loads(options.out.read_text())
    for name, rate in rows(options.draws):
        # What an earlier call measured is kept: it may be ended at any row.
        if name not in report["rows"]:
            passed = [_shown(rate(count)) for count in options.problems]
            report["rows"][name] = {"passed": passed, "draws": options.draws}
        print(f"| {name} | {' | '.join(report['rows'][name]['passed'])} |", flush=True)
        if options.out:
            options.out.write_text(json.dumps(report, indent=1) + "\n")


def rows(draws: int) -> Iterator[tuple[str, Callable[[int], float | None]]]:
    """Name each case, with the share of outcomes at a number of problems that pass."""
    for least in (0.6, 0.85, 0.9, 0.95):
        gate = _threshold(least)
        yield (
            f"`threshold`, right or wrong, true share = at_least = {least:g}",
            lambda count, gate=gate: passing_share(gate, count, gate.at_least),
        )
    for least, shape in ((0.6, "spread"), (0.9, "spread"), (0.9, "all or nearly none")):
        gate = _threshold(least)
        drawn = _spread(least) if shape == "spread" else _mixed(least)
        yield (
            f"`threshold` {least:g}, 8 samples x 3 seeds, {shape}",
            lambda count, gate=gate, drawn=drawn: passing_draws(gate, count, drawn, draws),
        )
    for tolerance in (0.02, 0.1):
        gate = NoRegressionGate(name="n", kind="no_regression", tolerance=tolerance)
        yield (
            f"`no_regression` {tolerance:g}, that share of problems lost entirely",
            lambda count, gate=gate: passing_losses(gate, count, gate.tolerance),
        )
        yield (
            f"`no_regression` {tolerance:g}, each problem loses it, 8 x 3",
            lambda count, gate=gate: passing_draws(gate, count, _shifted(-gate.tolerance), draws),
        )
    gate = ImprovementGate(name="i", kind="improvement")
    yield (
        "`improvement`, equal policies, 8 x 3",
        lambda count, gate=gate: passing_draws(gate, count, _shifted(0.0), draws),
    )
    yield (
        "`improvement`, equal in the mean: +0.1 on 90% and -0.9 on 10% of problems",
        lambda count, gate=gate: passing_draws(gate, count, _skewed, draws),
    )
    for gain in (0.05, 0.1, 0.2):
        yield (
            f"*should pass*: `improvement`, better by {gain:g}, 8 x 3",
            lambda count, gain=gain: passing_draws(gate, count, _shifted(gain), draws),
        )
    equal = NoRegressionGate(name="n", kind="no_regression", tolerance=0.05)
    yield (
        "*should pass*: `no_regression` 0.05, equal policies, 8 x 3",
        lambda count: passing_draws(equal, count, _shifted(0.0), draws),
    )
    better = _threshold(0.6)
    yield (
        "*should pass*: `threshold` 0.6, true rate 0.7, spread, 8 x 3",
        lambda count: passing_draws(better, count, _spread(0.7), draws),
    )


def passing_share(gate: MetricGate, count: int, true: float) -> float | None:
    """Weigh every number of solved problems, one sample each, that passes."""
    if count < gate.problems_needed():
        return None
    return _weight(lambda solved: _passes(gate, np.arange(count) < solved), count, true)


def passing_losses(gate: MetricGate, count: int, true: float) -> float | None:
    """The same of problems that the policy before solved all, and this one but for some."""
    if count < gate.problems_needed():
        return None
    before = np.ones(count, dtype=bool)
    share = 1 - true
    return _weight(lambda kept: _passes(gate, np.arange(count) < kept, before), count, share)


def passing_draws(gate: MetricGate, count: int, draw: Draw, draws: int) -> float | None:
    """Draw problems and samples, and count what passes."""
    if count < gate.problems_needed():
        return None
    chance = np.random.default_rng([count, draws])
    passed = 0
    for _ in range(draws):
        rates = draw(chance, count)
        ours, theirs = (_results(_sampled(chance, rate_P)) for rate_P in rates)
        passed += gate.decide(ours, theirs).passed
    return passed / draws


def _weight(passes: Callable[[int], bool], count: int, true: float) -> float:
    outcomes = np.arange(count + 1)
    passing = [int(each) for each in outcomes if passes(int(each))]
    return float(binom.pmf(passing, count, true).sum())


def _passes(gate: MetricGate, ours_P: np.ndarray, theirs_P: np.ndarray | None = None) -> bool:
    pair = [None if each is None else _results(each[None, :, None]) for each in (ours_P, theirs_P)]
    assert pair[0] is not None
    return gate.decide(pair[0], pair[1]).passed


def _results(right: np.ndarray) -> Results:
    """Counts of right samples. `[seeds, P, samples]`"""
    by_seed = {
        str(seed): {
            f"{place:05}": (int(solved), right.shape[2])
            for place, solved in enumerate(right[seed].sum(-1))
        }
        for seed in range(right.shape[0])
    }
    return Results("policy", {}, by_seed)


def _sampled(chance: np.random.Generator, rate_P: np.ndarray) -> np.ndarray:
    drawn = chance.random((SEEDS, len(rate_P), SAMPLES))
    return drawn < rate_P[None, :, None]


def _threshold(least: float) -> ThresholdGate:
    return ThresholdGate(name="t", kind="threshold", at_least=least)


def _spread(mean: float) -> Draw:
    """Rates from a beta distribution with the variance of a uniform one, at most."""
    shape = 2 * min(mean, 1 - mean)
    first, second = shape * mean / min(mean, 1 - mean), shape * (1 - mean) / min(mean, 1 - mean)

    def draw(chance: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        rate_P = chance.beta(first, second, count)
        return rate_P, rate_P

    return draw


def _mixed(mean: float) -> Draw:
    """Most problems are always solved, and a few hardly ever."""

    def draw(chance: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        rate_P = np.where(chance.random(count) < (1 - mean) / 0.95, 0.05, 1.0)
        return rate_P, rate_P

    return draw


def _shifted(by: float) -> Draw:
    """Problems of any difficulty, each by so much easier or harder for the released policy."""

    def draw(chance: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
        other_P = chance.uniform(max(0.0, -by), min(1.0, 1 - by), count)
        return other_P + by, other_P

    return draw


def _skewed(chance: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Better by a little on most problems, and much worse on the others, all told by 0."""
    is_lost_P = chance.random(count) < 0.1
    return np.where(is_lost_P, 0.0, 1.0), np.where(is_lost_P, 0.9, 0.9)


def _shown(share: float | None) -> str:
    return REFUSED if share is None else f"{100 * share:.1f}%" if math.isfinite(share) else "-"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=1000, help="Draws of each row that is drawn.")
    parser.add_argument("--problems", type=int, nargs="+", default=list(PROBLEMS))
    parser.add_argument("--out", type=Path, help="Where to write the figures, as JSON.")
    return parser.parse_args()


if __name__ == "__main__":
    main()
