"""Learning curves: one panel for each metric of each training stage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from posttrain.stage.spec import ArtifactKind
from posttrain.views.report.facts import StageFacts, found
from posttrain.views.report.lines import LineSeries, line_chart, smooth, thin

# What a reader looks for first; anything else is folded away below it.
_FIRST = ("reward", "loss", "accuracy", "length", "entropy", "kl")
_LAST = ("grad_norm", "learning_rate")
_LEAST, _MOST = 3, 6
_SMOOTH_OVER = 21

Curves = Mapping[str, tuple[list[float], list[float]]]


@dataclass(frozen=True)
class Training:
    """The curves of one stage: those that matter, and the rest."""

    stage: str
    main: list[Markup]
    rest: list[Markup]


def trainings(stages: Sequence[StageFacts], artifacts: Mapping[str, Path]) -> list[Training]:
    """Panels of every stage that has curves."""
    drawn = []
    for item in found(stages, artifacts, ArtifactKind.CURVE):
        curves = _read(item.path)
        names = sorted(curves, key=_rank)
        first = [name for name in names if _rank(name)[0] < len(_FIRST)]
        main = names[: min(max(len(first), _LEAST), _MOST)]
        drawn.append(
            Training(
                item.stage,
                [_panel(name, *curves[name]) for name in main],
                [_panel(name, *curves[name]) for name in names if name not in main],
            )
        )
    return drawn


def _read(path: Path) -> Curves:
    """Metric -> (steps, values), in the order of the steps."""
    import polars as pl

    table = pl.read_parquet(path, columns=["step", "metric", "value"]).sort("metric", "step")
    return {
        str(metric): (part["step"].cast(pl.Float64).to_list(), part["value"].to_list())
        for (metric,), part in table.group_by("metric", maintain_order=True)
    }


def _rank(metric: str) -> tuple[int, str]:
    """Where a metric comes: by the word that its last part is or contains."""
    name = metric.rpartition("/")[2]
    for index, word in enumerate(_FIRST):
        if name == word or name.endswith(f"_{word}") or name.startswith(f"{word}_"):
            return index, "" if name == word else metric
    return len(_FIRST) + (1 if name in _LAST else 0), metric


def _panel(metric: str, steps: Sequence[float], values: Sequence[float]) -> Markup:
    """The metric as it was, faint, and its running mean; a schedule is drawn as it is."""
    reach = 0 if metric.endswith("learning_rate") else min(_SMOOTH_OVER, len(values) // 5) // 2
    raw = LineSeries(metric, *thin(steps, values), "c1 faint" if reach else "c1")
    mean = [LineSeries(metric, *thin(steps, smooth(values, reach)), "c1")] if reach else []
    return line_chart(metric, [raw, *mean], x_title="step")
