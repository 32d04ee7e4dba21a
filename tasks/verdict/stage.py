"""Decide a claim: contract, mechanism, equal amounts, then the comparisons, over seeds."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch

from posttrain.learning.maths.decision import (
    Outcome,
    bootstrap_interval,
    conjunction,
    decided,
    paired_interval,
    seeds_enough,
)
from posttrain.methods.claim import ARENA_BASE, ClaimDecision, MechanismCheck
from posttrain.stage.context import StageContext
from posttrain.stage.formatting import counted
from posttrain.stage.seeds import purpose_seed
from tasks.verdict.config import VerdictConfig
from tasks.verdict.measured import Measured, curve_value, holds, read_measured

_LAYOUT = 3
_OUTCOMES: tuple[Outcome, ...] = ("confirmed", "refuted", "undecided", "void")


def run(
    config: VerdictConfig,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    context: StageContext,
) -> dict[str, float]:
    """Read what was measured, decide, and write the verdict."""
    measured = read_measured(inputs, config.arms, config.seeds)
    contract = [*_contract(config, measured)]
    mechanism = [*_mechanism(config, measured)]
    void = [
        *(told for each in contract for told in each.told_of_base()),
        *(told for each in mechanism for told in each.told_of_mechanism()),
        *_amounts(config, measured),
    ]
    compared = [_compared(config, each, measured, context.seed) for each in config.decide]
    outcome = "void" if void else conjunction([each["outcome"] for each in compared])
    verdict = {
        "layout": _LAYOUT,
        "method": config.method,
        "claim": config.claim,
        "verdict": outcome,
        "void": void,
        "contract": [each.figures() for each in contract],
        "mechanism": [each.figures() for each in mechanism],
        "decisions": compared,
        "seeds": config.seeds,
        "sentence": _sentence(outcome, void, compared, config.seeds),
    }
    text = json.dumps(verdict, indent=1, sort_keys=True, allow_nan=False)
    outputs["verdict"].write_text(text + "\n", encoding="utf-8")
    return {f"verdict/{each}": float(each == outcome) for each in _OUTCOMES}


class _Looked(NamedTuple):
    """A check, and what was measured of it."""

    check: MechanismCheck
    values: Sequence[float]
    """What is held against its bounds: of a mechanism by seed, of the base one mean."""
    at: str | None = None
    """Which value of a curve that is; None of a figure that is no curve's."""

    def figures(self) -> dict[str, Any]:
        """Say it as the artifact does; numbers that are not finite are left out as null."""
        return {
            "metric": self.check.metric,
            "at": self.at,
            "values": [_finite(value) for value in self.values],
            "asked": _bounds(self.check),
            "holds": all(holds(self.check, value) for value in self.values),
        }

    def told_of_base(self) -> Iterator[str]:
        """Say what the base does not show."""
        for value in self.values:
            if not holds(self.check, value):
                yield f"the arena's base has {self.check.metric} {value:.3g}, and {self._asked()}"

    def told_of_mechanism(self) -> Iterator[str]:
        """Say at which seeds it did not happen."""
        at = f" ({self.at})" if self.at else ""
        for seed, value in enumerate(self.values, start=1):
            if not holds(self.check, value):
                yield (
                    f"the mechanism did not act: {self.check.metric}{at} is {value:.3g} at seed"
                    f" {seed}, and {self._asked()}"
                )

    def _asked(self) -> str:
        return f"{_bounds(self.check)} is asked"


def _contract(config: VerdictConfig, measured: Measured) -> Iterator[_Looked]:
    """What the base shows of that which the arena promises, in the mean over evaluations."""
    for check in config.contract:
        values = [measured.value(check.metric, config.base, s) for s in range(config.seeds)]
        yield _Looked(check, [fmean(values)])


def _mechanism(config: VerdictConfig, measured: Measured) -> Iterator[_Looked]:
    """What happened in the method's arm, by seed."""
    own = config.arms[0]
    for check in config.mechanism:
        # What is of a curve has a slash, and dots too where it is a schedule's.
        if "/" in check.metric:
            curves = measured.curves[own]
            values = [curve_value(curve, check.metric, check.at, own) for curve in curves]
            yield _Looked(check, values, check.at)
        else:
            figures = [measured.value(check.metric, own, each) for each in range(config.seeds)]
            yield _Looked(check, figures)


def _amounts(config: VerdictConfig, measured: Measured) -> Iterator[str]:
    """Arms that used another amount than the method's, over all seeds."""
    total = {
        arm: config.updates_per_step.get(arm, 1)
        * sum(measured.amount(config.matched, arm, seed) for seed in range(config.seeds))
        for arm in config.arms
    }
    own = total[config.arms[0]]
    for arm, amount in total.items():
        if abs(amount - own) > config.tolerance * own:
            yield (
                f"the arms are not matched: {config.arms[0]} took {own:.0f} {config.matched} and"
                f" {arm} {amount:.0f}"
            )


def _compared(
    config: VerdictConfig, decision: ClaimDecision, measured: Measured, seed: int
) -> dict[str, Any]:
    """One comparison with its figures; numbers that are not finite are left out as null."""
    own, rival = config.arms[0], _rival(config, decision)
    seeds = range(config.seeds)
    ours = [measured.value(decision.metric, own, each) for each in seeds]
    if decision.than is not None:
        theirs = [decision.than] * config.seeds
    else:
        theirs = [measured.value(decision.metric, rival, each) for each in seeds]
    differences_S = torch.tensor(ours, dtype=torch.float64) - torch.tensor(
        theirs, dtype=torch.float64
    )
    interval = paired_interval(differences_S)
    outcome = decided(
        differences_S,
        direction=decision.direction,
        margin=decision.margin,
        better=decision.better,
    )
    enough = math.inf
    if outcome == "undecided" and config.seeds > 1:
        enough = max(seeds_enough(differences_S, threshold=each) for each in _thresholds(decision))
    resampled = None
    if decision.metric == "pass_at_1" and decision.than is None:
        low, high = _over_problems(measured, own, rival, purpose_seed(seed, "bootstrap"))
        resampled = {"low": low, "high": high}
    return {
        "metric": decision.metric,
        "is": decision.direction,
        "margin": decision.margin,
        "better": decision.better,
        "against": rival if decision.than is None else None,
        "ours": ours,
        "theirs": theirs,
        "difference": float(interval.estimate),
        "low": _finite(float(interval.low)),
        "high": _finite(float(interval.high)),
        "outcome": outcome,
        "seeds_enough": _finite(enough),
        "over_problems": resampled,
    }


def _rival(config: VerdictConfig, decision: ClaimDecision) -> str:
    """Name the policy that ours is compared with; of a number, nothing is read."""
    if decision.than is not None:
        return ""
    if decision.against == ARENA_BASE:
        return config.base
    return decision.against or config.arms[1]


def _thresholds(decision: ClaimDecision) -> list[float]:
    """Where an interval of ours minus theirs must not reach for the claim to be decided.

    Of two edges the nearer one decides, and asks for more seeds.
    """
    margin, worse = decision.margin, -1.0 if decision.better == "higher" else 1.0
    return {
        "higher": [margin],
        "lower": [-margin],
        "not_worse": [worse * margin],
        "equal": [-margin, margin],
    }[decision.direction]


def _over_problems(measured: Measured, own: str, rival: str, seed: int) -> tuple[float, float]:
    """Interval over problems of the difference, each problem's being the mean over seeds."""
    differences: dict[str, list[float]] = {}
    for each in range(len(measured.policies)):
        rates = [
            dict(measured.by_problem(arm, each).select("problem_id", "rate").iter_rows())
            for arm in (own, rival)
        ]
        for problem in sorted(rates[0].keys() & rates[1].keys()):
            differences.setdefault(problem, []).append(rates[0][problem] - rates[1][problem])
    means_P = torch.tensor([sum(each) / len(each) for each in differences.values()])
    interval = bootstrap_interval(means_P, seed=seed)
    return float(interval.low), float(interval.high)


def _sentence(outcome: str, void: list[str], compared: list[dict[str, Any]], seeds: int) -> str:
    if void:
        return f"void: {'; '.join(void)}"
    if seeds == 1:
        figures = "; ".join(f"{_difference(each)}, {_claimed(each)}" for each in compared)
        return f"one run of each arm says nothing of spread, so nothing is decided: {figures}"
    figures = "; ".join(
        f"{_difference(each)} [{_shown(each['low'])}, {_shown(each['high'])}], {_claimed(each)}:"
        f" {each['outcome']}"
        for each in compared
    )
    enough = [each["seeds_enough"] for each in compared if each["outcome"] == "undecided"]
    more = ""
    if outcome == "undecided":
        known = [each for each in enough if each is not None]
        more = (
            f"; {max(known):.0f} seeds would be enough if they differ as these do"
            if len(known) == len(enough)
            else "; no number of seeds like these would be enough"
        )
    return f"{outcome}: {figures}; {counted(seeds, 'seed')}{more}"


def _difference(compared: dict[str, Any]) -> str:
    """Say what was compared, in means over seeds."""
    ours, theirs = (f"{fmean(compared[each]):.4g}" for each in ("ours", "theirs"))
    rival = compared["against"]
    other = f"{theirs} of {rival}" if rival else f"the number {theirs}"
    return f"{compared['metric']} {ours} against {other}, difference {compared['difference']:+.4g}"


def _claimed(compared: dict[str, Any]) -> str:
    return f"{compared['is']} by {compared['margin']:g}"


def _bounds(check: MechanismCheck) -> str:
    low = [f"at least {check.at_least:g}"] if check.at_least is not None else []
    high = [f"at most {check.at_most:g}"] if check.at_most is not None else []
    return " and ".join([*low, *high])


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _shown(value: float | None) -> str:
    return "?" if value is None else f"{value:+.4g}"
