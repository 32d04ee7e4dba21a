"""What stock DVC shows of a recipe: metrics and curves of its stages, committed beside its locks.

DVC reads JSON and tables of text, and a curve is parquet; what lies in git it finds at every
revision, without a cache or a remote.
"""

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from posttrain.provenance.ledger import StageRun
from posttrain.stage.files import replacing
from posttrain.stage.spec import ArtifactKind

METRICS_FILE, PLOTS_FOLDER = "metrics.json", "plots"
_MOST_POINTS = 200
"""Points of a curve that are drawn; committed files stay small."""


def keep_views(folder: Path, records: Mapping[str, StageRun], stages: Collection[str]) -> None:
    """Let the files say what the outputs in place came to.

    Args:
        folder: Of the recipe.
        records: Stages whose outputs are in place.
        stages: All stages of the flow in order; others leave the file of metrics.

    """
    stood = _metrics_in(folder / METRICS_FILE)
    said = {
        name: _numbers(records[name]) if name in records else stood.get(name, {}) for name in stages
    }
    said = {name: numbers for name, numbers in said.items() if numbers}
    if said != stood:
        _write(folder / METRICS_FILE, json.dumps(said, indent=1) + "\n")
    for name in stages:
        if name in records:
            _keep_curves(folder, records[name])
    for left in sorted((folder / PLOTS_FOLDER).glob("*/*.tsv")):
        if left.parent.name not in stages:
            left.unlink()


def _numbers(record: StageRun) -> dict[str, float]:
    """Metrics of a stage by what follows the task in their names; JSON has finite ones alone."""
    found = {name.partition("/")[2] or name: value for name, value in record.metrics.items()}
    return {name: found[name] for name in sorted(found) if math.isfinite(found[name])}


def _metrics_in(path: Path) -> dict[str, Any]:
    """What the file says; nothing of one that is not there, or that somebody broke: it is ours."""
    try:
        stood = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stood if isinstance(stood, dict) else {}


def _keep_curves(folder: Path, record: StageRun) -> None:
    """Write the curves of a stage as tables, one a metric, unless they are there already."""
    plots = folder / PLOTS_FOLDER / record.stage
    curves = [folder / each.path for each in record.outputs if each.type == ArtifactKind.CURVE]
    if record.status == "cached" and plots.is_dir():
        return
    there = set(plots.glob("*.tsv"))
    for curve in filter(Path.is_file, curves):
        for metric, points in _points_by_metric(curve).items():
            named = metric.partition("/")[2] or metric
            rows = "".join(f"{step}\t{value!r}\n" for step, value in _thinned(points))
            _write(plots / f"{named}.tsv", f"step\t{named}\n{rows}")
            there.discard(plots / f"{named}.tsv")
    for left in there:
        left.unlink()


def _points_by_metric(curve: Path) -> dict[str, list[tuple[int, float]]]:
    """The finite points of each metric that was measured more than once."""
    import polars as pl

    found: dict[str, list[tuple[int, float]]] = {}
    table = pl.read_parquet(curve, columns=["step", "metric", "value"])
    for step, metric, value in table.iter_rows():
        if math.isfinite(value):
            found.setdefault(metric, []).append((step, value))
    return {metric: points for metric, points in found.items() if len(points) > 1}


def _thinned(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most so many points, the first and the last among them."""
    last, most = len(points) - 1, _MOST_POINTS
    if len(points) <= most:
        return points
    return [points[place * last // (most - 1)] for place in range(most)]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
