"""Evaluation reports: rows of the headline table, the sentence above it, and their charts.

Reads the JSON that an evaluation writes by its documented keys, without importing the task.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from posttrain.stage.spec import ArtifactKind
from posttrain.views.report.charts import (
    SHARE,
    Chart,
    Series,
    bar_chart,
    interval_chart,
    line_chart,
    share_labels,
)
from posttrain.views.report.facts import StageFacts, found

NUM_STYLES = 8
_MOST_BINS = 16

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Share:
    """A rate and its 95% interval, or only the rate."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def direction(self) -> str:
        """For a difference: "up" or "down" where the interval leaves 0 out, else nothing."""
        low = self.value if self.low is None else self.low
        high = self.value if self.high is None else self.high
        return "up" if low > 0 else "down" if high < 0 else ""

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.1%}"
        return f"{self.value:.1%} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


@dataclass(frozen=True)
class PolicyRow:
    """One policy in the headline table; `gain` is in points over `parent`, paired by problem."""

    name: str
    style: str
    pass_at_1: Share
    pass_at_k: Share | None
    k: int
    majority: Share | None
    best_of: Share | None
    best_of_k: int
    mean_length: float | None
    parent: str | None
    gain: Share | None
    newly_solved: int
    newly_lost: int


def evaluations(
    stages: Sequence[StageFacts], artifacts: Mapping[str, Path]
) -> list[tuple[str, Json]]:
    """Stage and content of every report that compares policies."""
    contents = (
        (item.stage, read_json(item.path)) for item in found(stages, artifacts, ArtifactKind.REPORT)
    )
    return [(stage, content) for stage, content in contents if is_evaluation(content)]


def read_json(path: Path) -> Json:
    """The object in a JSON file; an empty one where it holds something else."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def is_evaluation(content: Json) -> bool:
    """Return whether a report is about policies."""
    policies = content.get("policies")
    return isinstance(policies, list) and bool(policies) and "pass_at" in policies[0]


def policy_rows(report: Json) -> list[PolicyRow]:
    """The headline table, in the report's order: parents first."""
    return [
        _row(policy, f"c{index % NUM_STYLES}") for index, policy in enumerate(report["policies"])
    ]


def _row(policy: Json, style: str) -> PolicyRow:
    curve = policy["pass_at"]
    best = policy.get("best_of") or []
    majority = policy.get("majority")
    change = policy.get("change") or {}
    return PolicyRow(
        name=policy["name"],
        style=style,
        pass_at_1=_share(curve[0]),
        pass_at_k=_share(curve[-1]) if len(curve) > 1 else None,
        k=curve[-1]["k"],
        majority=_share(majority) if majority else None,
        best_of=_share(best[-1]) if best else None,
        best_of_k=best[-1]["k"] if best else 0,
        mean_length=policy.get("mean_length"),
        parent=change.get("parent"),
        gain=_share(change["difference"]) if change else None,
        newly_solved=len(change.get("newly_solved", [])),
        newly_lost=len(change.get("newly_lost", [])),
    )


def _share(estimate: Json) -> Share:
    return Share(estimate["value"], estimate.get("low"), estimate.get("high"))


def verdict(report: Json) -> str:
    """What the evaluation says, in one sentence about its last policy."""
    last = policy_rows(report)[-1]
    said = (
        f"{last.name} solves {last.pass_at_1.value:.1%} of {report['num_problems']} held-out "
        "problems at the first try"
    )
    if last.parent is None or last.gain is None:
        return said + "."
    gain = f"{100 * last.gain.value:+.1f} points over {last.parent}"
    if last.gain.low is None or last.gain.high is None:
        return f"{said}: {gain}."
    span = f"95% interval {100 * last.gain.low:+.1f} to {100 * last.gain.high:+.1f}"
    return f"{said}: {gain} ({span}{'' if last.gain.direction else ', so no clear difference'})."


def charts(report: Json) -> list[Chart]:
    """Everything that an evaluation report can show."""
    rows = policy_rows(report)
    intervals = [
        _series(row.name, row.style, policy["pass_at"][:1])
        for policy, row in zip(report["policies"], rows, strict=True)
        if row.pass_at_1.low is not None and row.pass_at_1.high is not None
    ]
    drawn = [
        interval_chart("Solved at the first try", intervals, note="Mean and 95% interval.")
        if intervals
        else None,
        _pass_at_k(report, rows),
        _histogram(report, rows),
        _slices(report, rows, "by_difficulty"),
        _slices(report, rows, "by_source"),
    ]
    return [chart for chart in drawn if chart is not None]


def _pass_at_k(report: Json, rows: Sequence[PolicyRow]) -> Chart:
    lines = []
    for policy, row in zip(report["policies"], rows, strict=True):
        lines.append(replace(_series(row.name, row.style, policy["pass_at"]), dots=True))
        if best := policy.get("best_of"):
            chosen = _series(f"{row.name}, best of k", f"{row.style} dash", best)
            lines.append(replace(chosen, low=(), high=(), dots=True))
    return line_chart(
        "Solved within k tries",
        lines,
        x_title="k",
        unit=SHARE,
        y_range=(0.0, 1.0),
        log_x=True,
        note="Solid: at least one of k samples is right. Dashed: the reward model's choice is.",
    )


def _series(name: str, style: str, estimates: Sequence[Json]) -> Series:
    values, low, high = ([each[end] for each in estimates] for end in ("value", "low", "high"))
    return Series(name, style, values, [each.get("k", 0) for each in estimates], low, high)


def _histogram(report: Json, rows: Sequence[PolicyRow]) -> Chart | None:
    histograms = [policy.get("solve_histogram") for policy in report["policies"]]
    if not all(histograms):
        return None
    samples = len(histograms[0]) - 1
    bins = min(samples, _MOST_BINS)
    groups = []
    for row, histogram in zip(rows, histograms, strict=True):
        counts = [0] * (bins + 1)
        for solved, count in enumerate(histogram):
            counts[round(solved / samples * bins)] += count
        groups.append(Series(row.name, row.style, counts))
    return bar_chart(
        "How often each problem is solved",
        share_labels(bins),
        groups,
        x_title=f"right answers in {samples} tries",
        note="Problems per solve rate. Training teaches most between the ends.",
    )


def _slices(report: Json, rows: Sequence[PolicyRow], key: str) -> Chart | None:
    names = [part["name"] for part in report["policies"][0].get(key, [])]
    if len(names) < 2:
        return None
    groups = []
    for policy, row in zip(report["policies"], rows, strict=True):
        parts = {part["name"]: part["pass_at_1"] for part in policy[key]}
        groups.append(_series(row.name, row.style, [parts[name] for name in names]))
    what = key.removeprefix("by_")
    title = f"Solved at the first try, by {what}"
    return bar_chart(title, names, groups, x_title=what, unit=SHARE, top=1.0)
