"""Parameters of an import of curves."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from posttrain.data.run_sources.base import RunSource
from posttrain.data.run_sources.registry import RUN_SOURCES
from posttrain.stage.config import StageConfig
from posttrain.stage.slots import InSlot


class ImportCurvesConfig(StageConfig):
    """Which runs are read, and how their curves become one."""

    source: Annotated[RunSource, InSlot(RUN_SOURCES)]
    """Where the runs are, such as `{kind: mlflow_database, file: mlflow.db, experiment: ppo}`."""
    metrics: dict[str, str] = Field(min_length=1)
    """Name of a metric in the curve -> its name in the tracker."""
    where: dict[str, str] = Field(default_factory=dict)
    """Parameters and tags that a run must have, with their values, as texts."""
    task: str = ""
    """Parameter or tag that says which task a run is of: runs are resampled task by task. Empty
    where all are of one."""
    least_runs: int = Field(default=2, ge=1)
    """Runs that there must be of each task."""
    resamples: int = Field(default=2000, ge=100, le=100_000)
    """Resamples of the runs, for the interval."""
    confidence: float = Field(default=0.95, gt=0.0, lt=1.0)
    """Chance that the interval is meant to hold the mean."""

    def local_files(self) -> Mapping[str, str]:
        """The tracker's file arrives as `files.runs`."""
        path = self.source.path()
        return {} if path is None else {"runs": path}
