"""Learning curves: one panel for each metric of each training stage."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.stage.spec import ArtifactKind
from posttrain.views.charts import Chart, Series, line_chart
from posttrain.views.report.components import components_chart
from posttrain.views.report.facts import StageFacts, found

if TYPE_CHECKING:
    import polars as pl

# What a reader looks for first; anything else is folded away below it.
_FIRST = ("reward", "loss", "accuracy", "length", "entropy", "kl")
_LAST = ("grad_norm", "learning_rate")
_LEAST, _MOST = 3, 6
_SMOOTH_OVER = 21
_MOST_POINTS = 200


@dataclass(frozen=True)
class Training:
    """The curves of one stage: those that matter, and the rest."""

    stage: str
    main: list[Chart]
    rest: list[Chart]


def trainings(stages: Sequence[StageFacts], artifacts: Mapping[str, Path]) -> list[Training]:
    """Panels of every stage that has curves."""
    drawn = []
    for item in found(stages, artifacts, ArtifactKind.CURVE):
        curves = _read(item.path)
        names = sorted(curves, key=_rank)
        first = [name for name in names if _rank(name)[0] < len(_FIRST)]
        shown = min(max(len(first), _LEAST), _MOST)
        panels = [panel(name, curves[name]) for name in names]
        together = components_chart(curves)
        main = ([together] if together else []) + panels[:shown]
        drawn.append(Training(item.stage, main, panels[shown:]))
    return drawn


def _read(path: Path) -> "dict[str, pl.DataFrame]":
    """Metric -> steps and finite values, in the order of the steps."""
    import polars as pl

    table = pl.read_parquet(path, columns=["step", "metric", "value"]).sort("metric", "step")
    return {
        str(metric): part
        for (metric,), part in table.filter(pl.col("value").is_finite()).group_by(
            "metric", maintain_order=True
        )
    }


def _rank(metric: str) -> tuple[int, str]:
    """Where a metric comes: by the word that its last part is or contains."""
    name = metric.rpartition("/")[2]
    for index, word in enumerate(_FIRST):
        if name == word or name.endswith(f"_{word}") or name.startswith(f"{word}_"):
            return index, "" if name == word else metric
    return len(_FIRST) + (1 if name in _LAST else 0), metric


def panel(metric: str, curve: "pl.DataFrame") -> Chart:
    """Draw the metric as it was, faint, and its running mean; a schedule is drawn as it is.

    A long curve is drawn by means of runs of neighbors, each at the last step of its run.
    """
    import polars as pl

    reach = 0 if metric.endswith("learning_rate") else min(_SMOOTH_OVER, len(curve) // 5) // 2
    mean = pl.col("value").rolling_mean(2 * reach + 1, center=True, min_samples=1)
    run = pl.int_range(pl.len()) // math.ceil(len(curve) / _MOST_POINTS)
    drawn = (
        curve.with_columns(mean=mean)
        .group_by(run, maintain_order=True)
        .agg(pl.col("step").last(), pl.col("value", "mean").mean())
    )
    steps, values, means = (drawn[name].to_list() for name in ("step", "value", "mean"))
    line = Series(metric, 1, means, steps, faint=values if reach else ())
    return line_chart(metric, [line], x_title="step")
