"""Decide on metrics from per-problem results: intervals over problems, never a bare estimate."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from posttrain.learning.maths.comparison import exact_sign_test, paired_bootstrap, sign_flip_test
from posttrain.learning.maths.intervals import bootstrap_mean_interval, wilson_interval
from posttrain.learning.maths.pass_at_k import pass_at_k
from posttrain.publishing.release.config import (
    ImprovementGate,
    MetricGate,
    NoRegressionGate,
    ThresholdGate,
)
from posttrain.publishing.release.results import Counts, Results

_RESAMPLES = 10_000
# With fewer, resampling problems understates how much they differ: one problem has no spread.
_FEWEST_PROBLEMS = 20


@dataclass(frozen=True)
class Verdict:
    """Whether a gate passed, the rule in words, and the figures that it was decided by."""

    passed: bool
    rule: str
    figures: Mapping[str, float]
    remedy: str = ""


def threshold(gate: ThresholdGate, ours: Results) -> Verdict:
    """The lower end of the metric's interval reaches the threshold."""
    rule = (
        f"the lower end of the {gate.confidence:.0%} bootstrap interval of {gate.metric} over "
        f"problems is at least {gate.at_least:g}, with {gate.seeds} or more seeds"
    )
    if lacking := _lacking_seeds(gate, ours) or _few_problems(ours):
        return Verdict(False, rule, _seeds(ours), lacking)
    figures = _estimate(gate.metric, ours, gate.confidence)
    return Verdict(figures["low"] >= gate.at_least, rule, figures)


def improvement(gate: ImprovementGate, ours: Results, theirs: Results) -> Verdict:
    """Better by more than the margin, beyond what drawing other problems would explain."""
    common = f"{gate.metric} over the same problems, {gate.seeds} or more seeds of each policy"
    rules = {
        "paired_bootstrap": (
            f"the lower end of the {gate.confidence:.0%} paired bootstrap interval of the "
            f"difference in {common}, exceeds {gate.margin:g}, and flipping the signs of the "
            f"differences at random gives p <= {1 - gate.confidence:.3g}"
        ),
        "sign": (
            f"the exact sign test over problems won and lost by more than {gate.margin:g} gives "
            f"p <= {1 - gate.confidence:.3g}, and the mean difference exceeds it: {common}"
        ),
    }
    rule = rules[gate.test]
    few = "" if gate.test == "sign" else _few_problems(ours)
    if refusal := _refusal(gate, ours, theirs) or few:
        return Verdict(False, rule, _seeds(ours), refusal)
    differences_P, figures = _difference(gate, ours, theirs)
    if gate.test == "sign":
        figures["p_value"] = exact_sign_test(differences_P - gate.margin)
        better = figures["difference"] > gate.margin
        return Verdict(better and figures["p_value"] <= 1 - gate.confidence, rule, figures)
    # A bootstrap of few problems is too sure of itself; flipped signs are exact for any number.
    figures["p_flipped"] = sign_flip_test(
        differences_P - gate.margin,
        generator=torch.Generator().manual_seed(0),
        num_resamples=_RESAMPLES,
    )
    better = figures["low"] > gate.margin and figures["p_flipped"] <= 1 - gate.confidence
    return Verdict(better, rule, figures)


def no_regression(gate: NoRegressionGate, ours: Results, theirs: Results) -> Verdict:
    """Not worse by more than the tolerance, beyond doubt."""
    rule = (
        f"the lower end of the {gate.confidence:.0%} paired bootstrap interval of the difference "
        f"in {gate.metric} over the same problems is above {-gate.tolerance:g}, "
        f"with {gate.seeds} or more seeds of each policy"
    )
    if refusal := _refusal(gate, ours, theirs) or _few_problems(ours):
        return Verdict(False, rule, _seeds(ours), refusal)
    _, figures = _difference(gate, ours, theirs)
    return Verdict(figures["low"] > -gate.tolerance, rule, figures)


def estimates(results: Results, *, confidence: float = 0.95) -> dict[str, dict[str, float]]:
    """pass@k of a policy with intervals, for every k of 1, 2, 4 ... that there are samples for."""
    pooled = results.pooled()
    fewest = min((taken for _, taken in pooled.values()), default=0)
    found = {}
    k = 1
    while k <= fewest:
        found[f"pass_at_{k}"] = _estimate(f"pass_at_{k}", results, confidence)
        k *= 2
    return found


def _estimate(metric: str, results: Results, confidence: float) -> dict[str, float]:
    """A metric with its interval over problems."""
    values_P = _values(metric, results.pooled())
    interval = bootstrap_mean_interval(
        values_P,
        torch.arange(len(values_P)),
        generator=torch.Generator().manual_seed(0),
        num_resamples=_RESAMPLES,
        confidence=confidence,
    )
    low, high = float(interval.low), float(interval.high)
    if low == high and low in (0.0, 1.0):
        # All solved, or none: resampling shows no spread, Wilson's interval does.
        num_problems = torch.tensor(len(values_P))
        wilson = wilson_interval(num_problems * int(low), num_problems, confidence=confidence)
        low, high = float(wilson.low), float(wilson.high)
    return {
        "value": float(interval.estimate),
        "low": low,
        "high": high,
        "problems": float(len(values_P)),
        **_seeds(results),
    }


def _refusal(gate: MetricGate, ours: Results, theirs: Results) -> str:
    """Why two sets of results cannot be compared at all; empty where they can."""
    if dict(ours.basis) != dict(theirs.basis):
        differs = [name for name in ours.basis if ours.basis[name] != theirs.basis.get(name)]
        return (
            f"the other policy was evaluated with other {' and '.join(differs)}; "
            "evaluate both with the recipe as it is now"
        )
    if ours.problems != theirs.problems:
        return "the other policy was evaluated on other problems; evaluate both on the same ones"
    return _lacking_seeds(gate, ours) or _lacking_seeds(gate, theirs)


def _lacking_seeds(gate: MetricGate, results: Results) -> str:
    have = len(results.by_seed)
    if have >= gate.seeds:
        return ""
    unused = next(seed for seed in range(have + 1) if str(seed) not in results.by_seed)
    return (
        f"policy {results.policy[:12]} was evaluated with {have} of {gate.seeds} seeds; "
        "evaluate it again with another one: "
        f"posttrain run --only {results.stage} --set run.seed={unused}, "
        "then posttrain run to come back"
    )


def _few_problems(results: Results) -> str:
    have = len(results.problems)
    if have >= _FEWEST_PROBLEMS:
        return ""
    return (
        f"{have} problems are too few for a bootstrap interval ({_FEWEST_PROBLEMS} at least); "
        "hold out more problems, or ask for an improvement with test: sign"
    )


def _difference(
    gate: MetricGate, ours: Results, theirs: Results
) -> tuple[Tensor, dict[str, float]]:
    """Differences by problem, and their mean with its paired bootstrap interval."""
    first_P = _values(gate.metric, ours.pooled())
    second_P = _values(gate.metric, theirs.pooled())
    comparison = paired_bootstrap(
        first_P,
        second_P,
        torch.arange(len(first_P)),
        generator=torch.Generator().manual_seed(0),
        num_resamples=_RESAMPLES,
        confidence=gate.confidence,
    )
    interval = comparison.difference
    figures = {
        "value": float(first_P.mean()),
        "against": float(second_P.mean()),
        "difference": float(interval.estimate),
        "low": float(interval.low),
        "high": float(interval.high),
        "p_value": comparison.p_value,
        "problems": float(len(first_P)),
        "seeds": float(min(len(ours.by_seed), len(theirs.by_seed))),
    }
    return first_P - second_P, figures


def _values(metric: str, pooled: Mapping[str, Counts]) -> Tensor:
    """The metric of each problem, by id. `[P]`, float64."""
    right_P = torch.tensor([right for right, _ in pooled.values()], dtype=torch.float64)
    taken_P = torch.tensor([taken for _, taken in pooled.values()], dtype=torch.float64)
    return pass_at_k(right_P, taken_P, k=int(metric.removeprefix("pass_at_")))


def _seeds(results: Results) -> dict[str, float]:
    return {"seeds": float(len(results.by_seed))}
