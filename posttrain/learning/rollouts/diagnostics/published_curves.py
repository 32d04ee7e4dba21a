"""Runs that others published, drawn again beside one's own."""

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from pydantic import Field

from posttrain.learning.rollouts.diagnostics.base import (
    Diagnosis,
    Diagnostic,
    DrawnLine,
    Seen,
    values_by_step,
)
from posttrain.stage.declared import read_path, shipped_path
from posttrain.stage.errors import UserError, nearest

_COLUMNS = ("run", "seed", "step", "metric", "value")
Points = Mapping[int, float]
"""Value by step, of one run."""


class _Spread(NamedTuple):
    """Mean and interval over runs, step by step."""

    steps: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


class PublishedCurves(Diagnostic):
    """Draws the curves of a file beside those of one's own runs, each a mean over its seeds.

    The file is a table (CSV) with the columns run, seed, step, metric and value, one row a point,
    as a tracker exports it; further columns, such as the commit that ran it, are not looked at.
    `published` is the mean over the seeds of the published run over the last `window` steps that
    both have, `published_low` and `published_high` the ends of Student's 95% interval, `own` one's
    own value there, `off` own less published, `within` 1 where the own value lies where a further
    seed of the published run would (a 95% prediction interval), else 0.
    """

    SOURCE = (
        "Huang et al., 'Open RL Benchmark', arXiv:2402.03046: published runs are fetched and drawn"
        " with an interval over their seeds; openrlbenchmark/openrlbenchmark at d67da55,"
        " openrlbenchmark/rlops.py (compare: metric_last_n_average_window)"
    )
    NEEDS = frozenset({"curves"})

    kind: Literal["published_curves"] = "published_curves"
    path: str
    """The file, from the recipe's folder on; `PACKAGE:PATH` is one that a package ships."""
    run: str
    """The published run that one's own are held against; all others of the file are drawn."""
    metric: str = "rl/reward"
    """Which metric; in the file and in one's own curves it has the same name."""
    window: int = Field(default=1, ge=1)
    """Steps at the end that a run is averaged over before runs are compared."""

    def read_files(self) -> tuple[str, ...]:
        """Read the file where it lies."""
        return (self.path,)

    def diagnose(self, seen: Seen) -> Diagnosis:
        """Hold every own run against the published one; see `Diagnostic.diagnose`."""
        published = self._published(read_path(shipped_path(self.path)))
        if self.run not in published:
            hint = nearest(self.run, published) or f"; there are {', '.join(published)}"
            raise UserError(f"{self.path}: no run '{self.run}' has {self.metric}{hint}")
        spreads = {name: _spread(runs) for name, runs in published.items()}
        lines = [
            DrawnLine(f"{name} (published)", each.steps, each.mean, each.low, each.high)
            for name, each in spreads.items()
        ]
        figures = {}
        for name, path in seen.curves.items():
            own = values_by_step(path, self.metric)
            if not own:
                continue
            steps = sorted(own)
            lines.append(DrawnLine(name, steps, [own[step] for step in steps]))
            figures[name] = self._held(published[self.run], own)
        if not figures:
            raise UserError(f"diagnose: no curve that is connected has {self.metric}")
        return Diagnosis(figures, lines, ("step", self.metric))

    def _held(self, runs: Mapping[str, Points], own: Points) -> dict[str, float]:
        """Compare over the last steps that all have."""
        shared = set(own).intersection(*map(set, runs.values()))
        if not shared:
            raise UserError(f"{self.path}: '{self.run}' and the own curve have no step in common")
        last = sorted(shared)[-self.window :]
        ours, *values = (fmean(points[at] for at in last) for points in (own, *runs.values()))
        mean, half, spread = _student(values)
        found = {"published": mean, "own": ours, "off": ours - mean, "at": float(last[-1])}
        if half is not None and spread is not None:
            found |= {"published_low": mean - half, "published_high": mean + half}
            found["within"] = float(abs(ours - mean) <= spread)
        return found

    def _published(self, path: Path) -> dict[str, dict[str, dict[int, float]]]:
        """Points by run and seed."""
        found: dict[str, dict[str, dict[int, float]]] = {}
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.DictReader(file)
            missing = [name for name in _COLUMNS if name not in (rows.fieldnames or ())]
            if missing:
                raise UserError(
                    f"{self.path}: there is no column '{missing[0]}'; write one row a point, with"
                    f" the columns {', '.join(_COLUMNS)}"
                )
            for number, row in enumerate(rows, start=2):
                if row["metric"] == self.metric:
                    step, value = _numbers(row, f"{self.path}:{number}")
                    found.setdefault(row["run"], {}).setdefault(row["seed"], {})[step] = value
        return found


def _numbers(row: Mapping[str, str], where: str) -> tuple[int, float]:
    try:
        step, value = int(row["step"]), float(row["value"])
    except ValueError:
        raise UserError(
            f"{where}: step and value are numbers, got {row['step']!r} and {row['value']!r}"
        ) from None
    if not math.isfinite(value):
        raise UserError(f"{where}: the value is not finite; leave the row out")
    return step, value


def _spread(runs: Mapping[str, Points]) -> _Spread:
    steps = sorted(set.intersection(*map(set, runs.values())))
    ends = [_student([points[step] for points in runs.values()]) for step in steps]
    half = [each or 0.0 for _, each, _ in ends]
    mean = [each for each, _, _ in ends]
    low = [m - h for m, h in zip(mean, half, strict=True)]
    return _Spread(steps, mean, low, [m + h for m, h in zip(mean, half, strict=True)])


def _student(values: list[float]) -> tuple[float, float | None, float | None]:
    """Mean, half its 95% interval, and half the prediction interval of one more value."""
    from posttrain.learning.maths.intervals import student_quantile

    number = len(values)
    mean = sum(values) / number
    if number < 2:
        return mean, None, None
    deviation = math.sqrt(sum((each - mean) ** 2 for each in values) / (number - 1))
    t = student_quantile(number - 1, 0.95)
    return mean, t * deviation / math.sqrt(number), t * deviation * math.sqrt(1 + 1 / number)
