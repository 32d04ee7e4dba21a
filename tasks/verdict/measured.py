"""What arms and base show: figures of evaluations and of curves, by arm and seed."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import polars as pl

from posttrain.data.schemas import COMPLETIONS, CURVE
from posttrain.data.tables import read_table
from posttrain.methods.claim import MechanismCheck
from posttrain.stage.errors import UserError, nearest
from tasks.verdict.samples import OF_SAMPLES

_AMOUNTS = {"rollouts": "rl/rollouts_drawn", "tokens": "rl/tokens_drawn"}


class Measured(NamedTuple):
    """Everything that a verdict reads."""

    policies: list[dict[str, dict[str, Any]]]
    """Report of each policy by its name, for each seed."""
    judged: list[pl.DataFrame]
    """Samples that could be judged, of all policies, for each seed."""
    curves: dict[str, list[pl.DataFrame]]
    """Curve of each seed, by arm."""
    diagnosed: Sequence[Mapping[str, Mapping[str, float]]] = ()
    """Figures by policy and by `diagnostic.figure`, for each seed."""

    def value(self, metric: str, policy: str, seed: int) -> float:
        """Read a metric of a policy: of evaluation or diagnosis, or the last of its arm's curve."""
        if "/" in metric:
            return curve_value(self.curves[policy][seed], metric, "last", policy)
        if metric in OF_SAMPLES:
            return OF_SAMPLES[metric](self._samples(policy, seed))
        if "." in metric:
            return self._figure(metric, policy, seed)
        report = self.policies[seed][policy]
        known = {
            **{f"pass_at_{each['k']}": each["value"] for each in report["pass_at"]},
            **{f"best_of_{each['k']}": each["value"] for each in report["best_of"]},
            "majority": report["majority"]["value"],
            **{name: report[name] for name in ("mean_length", "truncation_rate", "format_rate")},
            **_of_episodes(report.get("episodes")),
        }
        if metric not in known:
            raise UserError(
                f"verdict: the evaluation has no {metric}; take one of"
                f" {', '.join((*known, *OF_SAMPLES))}"
            )
        return float(known[metric])

    def by_problem(self, policy: str, seed: int) -> pl.DataFrame:
        """Share of right samples of each problem, as `problem_id` and `rate`."""
        rates = (
            self._samples(policy, seed)
            .group_by("problem_id")
            .agg(pl.col("verified").cast(pl.Float64).mean().alias("rate"))
        )
        return rates.sort("problem_id")

    def amount(self, matched: str, arm: str, seed: int) -> float:
        """What an arm used in all, of what is to be equal between arms.

        Raises:
            UserError: The arm's curve does not say it.

        """
        curve = self.curves[arm][seed]
        if matched in _AMOUNTS:
            return sum(_values(curve, _AMOUNTS[matched], arm))
        return float(curve["step"].n_unique())

    def _figure(self, metric: str, policy: str, seed: int) -> float:
        """A figure of a variant of the evaluation, or of a diagnostic."""
        varied = self.policies[seed].get(policy, {}).get("variants", {})
        known = {
            f"{name}.{figure}": each["value"]
            for name, figures in varied.items()
            for figure, each in figures.items()
        }
        if self.diagnosed:
            known |= self.diagnosed[seed].get(policy, {})
        if metric not in known:
            told = nearest(metric, known) or f"; there are {', '.join(known) or 'none'}"
            raise UserError(f"verdict: there is no figure {metric} of {policy}{told}")
        return float(known[metric])

    def _samples(self, policy: str, seed: int) -> pl.DataFrame:
        digest = self.policies[seed][policy]["digest"]
        return self.judged[seed].filter(pl.col("generator") == digest)


def read_measured(inputs: Mapping[str, Path], arms: tuple[str, ...], seeds: int) -> Measured:
    """Read reports, completions and curves, which are named by arm and seed.

    Args:
        inputs: Paths by role: `reports.seed_1`, `completions.seed_1`, `curves.ARM_1`, ...
        arms: Names of the arms.
        seeds: How many seeds there are.

    Returns:
        All of it, seeds in their order.

    """
    numbers = range(1, seeds + 1)
    reports = [json.loads(inputs[f"reports.seed_{n}"].read_text()) for n in numbers]
    return Measured(
        [{each["name"]: each for each in report["policies"]} for report in reports],
        [_judged(inputs[f"completions.seed_{n}"]) for n in numbers],
        {arm: [read_table(inputs[f"curves.{arm}_{n}"], CURVE) for n in numbers] for arm in arms},
        [_figures(inputs[each]) for n in numbers if (each := f"diagnoses.seed_{n}") in inputs],
    )


def _figures(path: Path) -> dict[str, dict[str, float]]:
    """Figures of a diagnosis by what they are of, each as `diagnostic.figure`."""
    found: dict[str, dict[str, float]] = {}
    for name, said in json.loads(path.read_text())["diagnostics"].items():
        for of_what, figures in said["figures"].items():
            named = {f"{name}.{figure}": value for figure, value in figures.items()}
            found.setdefault(of_what, {}).update(named)
    return found


def _of_episodes(report: Mapping[str, Any] | None) -> dict[str, float]:
    """What the episodes of a policy were, where it played: score, turns, and what was counted."""
    if report is None:
        return {}
    found = {name: report[name] for name in ("score", "turns") if report[name] is not None}
    return {name: each["value"] for name, each in (report["facts"] | found).items()}


def curve_value(curve: pl.DataFrame, metric: str, at: str, arm: str) -> float:
    """Read one value of a curve: its mean, its first, its last, its highest, or its change.

    Raises:
        UserError: The curve does not have the metric.

    """
    values = _values(curve, metric, arm)
    tenth = math.ceil(len(values) / 10)
    return {
        "first": values[0],
        "last": values[-1],
        "highest": max(values),
        "mean": fmean(values),
        "change": fmean(values[-tenth:]) - fmean(values[:tenth]),
    }[at]


def holds(check: MechanismCheck, value: float) -> bool:
    """Say whether a measured value lies within the bounds; one that is no number does not."""
    low = float("-inf") if check.at_least is None else check.at_least
    high = float("inf") if check.at_most is None else check.at_most
    return low <= value <= high


def _values(curve: pl.DataFrame, metric: str, arm: str) -> list[float]:
    found = curve.filter(pl.col("metric") == metric).sort("step")["value"].to_list()
    if not found:
        known = curve["metric"].unique().to_list()
        raise UserError(f"verdict: the curve of {arm} has no {metric}{nearest(metric, known)}")
    return [float(each) for each in found]


def _judged(path: Path) -> pl.DataFrame:
    return read_table(path, COMPLETIONS).filter(pl.col("verified").is_not_null())
