"""Import curves: runs of a tracker, drawn again as one curve over their seeds."""

from typing import Any

from posttrain.stage.artifact_kinds import ArtifactKind
from posttrain.stage.spec import Port, Task
from tasks.import_curves.config import ImportCurvesConfig


def tracked_runs() -> Any:
    """The columns of the runs' table, one row a point."""
    import polars as pl

    columns: dict[str, Any] = {
        "id": pl.String,
        "parents": pl.List(pl.String),
        "run": pl.String,
        "name": pl.String,
        "task": pl.String,
        "step": pl.Int64,
        "metric": pl.String,
        "value": pl.Float64,
    }
    return pl.Schema(columns)


TRACKED_RUNS = ArtifactKind("tracked_runs", suffix=".parquet", shape="table", schema=tracked_runs)

TASK = Task(
    package="tasks.import_curves",
    config=ImportCurvesConfig,
    inputs={
        "files": Port(ArtifactKind.SOURCE, "the tracker's file, if it is one", many=True),
    },
    outputs={
        "curve": Port(ArtifactKind.CURVE, "interquartile mean over the runs, and its interval"),
        "runs": Port(TRACKED_RUNS, "every point of every run, as the tracker has it"),
        "report": Port(ArtifactKind.REPORT, "which runs these are"),
    },
)
