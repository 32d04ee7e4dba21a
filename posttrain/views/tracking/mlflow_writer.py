"""Tracked events as MLflow entities; runs in a process of its own, with explicit run ids."""

import gc
import importlib
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from posttrain.provenance.ledger.processes import is_gone
from posttrain.provenance.ledger.records import ArtifactRecord
from posttrain.stage.artifact_kinds import kind_named
from posttrain.stage.errors import first_line
from posttrain.stage.interrupts import held_back
from posttrain.views.tracking.base import Finished, Started
from posttrain.views.tracking.blank import keep_blank, lay_blank
from posttrain.views.tracking.mlflow_entities import (
    LONGEST,
    MetricTies,
    dataset_input,
    entity_name,
    milliseconds,
    param_entities,
    tag_entities,
)
from posttrain.views.tracking.mlflow_models import LoggedModels
from posttrain.views.tracking.mlflow_samples import show_samples
from posttrain.views.tracking.sqlite import commit_sooner

BATCH = 500
_STATUS = {
    "running": "KILLED",
    "succeeded": "FINISHED",
    "failed": "FAILED",
    "stopped": "KILLED",
    "killed": "KILLED",
}
# Without it MLflow opens an experiment on its page for agents and prompts.
_KIND = {"mlflow.experimentKind": "custom_model_development"}
# What MLflow imports for tables of a user's, where it finds it; mlflow-skinny does without.
_UNUSED = ("pandas", "polars", "numpy", "pyarrow", "scipy", "sklearn", "matplotlib", "datasets")
_PROCESS, _NOT_SHOWN = "posttrain.process", "posttrain.not_shown"


@dataclass
class MlflowWriter:
    """Writes to one MLflow store. `external` maps our ids to MLflow's; `owner` is whose runs."""

    client: Any
    artifacts: str | None
    external: dict[str, str]
    owner: str
    experiments: dict[str, str] = field(default_factory=dict)
    experiment_of: dict[str, str] = field(default_factory=dict)
    buffer: dict[str, list[Any]] = field(default_factory=dict)
    last: dict[str, tuple[int, float]] = field(default_factory=dict)
    told: dict[str, dict[str, int]] = field(default_factory=dict)
    begun: dict[str, Started] = field(default_factory=dict)
    ties: dict[str, MetricTies] = field(default_factory=dict)
    run_of: dict[str, str] = field(default_factory=dict)
    models: LoggedModels = field(init=False)

    def __post_init__(self) -> None:
        self.models = LoggedModels(self.client)

    @classmethod
    def open(
        cls, state: Path, uri: str | None, external: dict[str, str], *, owner: str
    ) -> "MlflowWriter":
        """Connect to `uri`, else to `MLFLOW_TRACKING_URI`, else to our own SQLite database.

        Two processes that create one database at the same time destroy it, hence the file lock.
        """
        from filelock import FileLock

        quiet_mlflow()
        from mlflow import MlflowClient

        state.mkdir(parents=True, exist_ok=True)
        database = state / "mlflow.db"
        where = uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{database}"
        local = where.startswith("sqlite:")
        if local:
            commit_sooner()
        new = local and not database.is_file()
        # A database that is half made would be of no use: who ends this process waits for it.
        with FileLock(state / "mlflow.lock"), held_back() if new else nullcontext():
            ours = uri is None and where == f"sqlite:///{database}"
            new = ours and not database.is_file() and not lay_blank("mlflow", database)
            client = MlflowClient(tracking_uri=where)
            if new:
                # MLflow makes the experiment `Default` anew, whose folder is the project's.
                keep_blank("mlflow", database, emptied=["experiments"])
        return cls(client, (state / "mlartifacts").as_uri() if local else None, external, owner)

    def start(self, handle: str, started: Started, moment: float) -> None:
        """Create the run, with its parameters, tags and inputs; or take up one that was killed."""
        tags = {key: value[:LONGEST] for key, value in started.tags.items()}
        tags[_PROCESS] = self.owner
        if started.parent is None:
            experiment = self._experiment(started.name)
        else:
            experiment = self.experiment_of[started.parent]
            tags["mlflow.parentRunId"] = self.external[started.parent]
        self.begun[handle] = started
        if started.resumes and self._take_up(handle, started.resumes, experiment):
            self.client.log_batch(started.resumes, tags=tag_entities(tags))
            self.ties[handle] = self.models.tied(started.inputs, experiment)
            return
        run = self.client.create_run(
            experiment, start_time=milliseconds(moment), tags=tags, run_name=started.name
        )
        self.external[handle], self.experiment_of[handle] = run.info.run_id, experiment
        if "posttrain.run" in tags:
            self.run_of[tags["posttrain.run"]] = run.info.run_id
        self.client.log_batch(run.info.run_id, params=param_entities(started.params))
        self._inputs(handle, started.inputs)

    def metrics(self, handle: str, step: int, values: Mapping[str, float], moment: float) -> None:
        """Buffer the metrics of one step, without what an earlier attempt has sent."""
        told = self.told.get(handle)
        if told:
            values = {
                k: value for k, value in values.items() if step > told.get(entity_name(k), -1)
            }
        self._add(handle, step, values, moment, MetricTies())

    def _add(
        self, handle: str, step: int, values: Mapping[str, float], moment: float, ties: MetricTies
    ) -> None:
        from mlflow.entities import Metric

        self.last[handle] = max((step, moment), self.last.get(handle, (0, 0.0)))
        points = self.buffer.setdefault(handle, [])
        for key, value in values.items():
            model = ties.model(key)
            name, digest = ties.dataset if model and ties.dataset else (None, None)
            points.append(
                Metric(
                    entity_name(key),
                    float(value),
                    milliseconds(moment),
                    step,
                    model_id=model,
                    dataset_name=name,
                    dataset_digest=digest,
                    run_id=self.external[handle],
                )
            )
        if len(points) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Write the buffered metrics."""
        for handle, points in self.buffer.items():
            self.client.log_batch(self.external[handle], metrics=points)
        self.buffer.clear()

    def finish(self, handle: str, finished: Finished, moment: float) -> None:
        """Write models, final metrics at the last step and tags, then close the run."""
        run_id, step, before = self.external[handle], *self.last.get(handle, (0, 0.0))
        self.ties[handle].made = self.models.make(
            finished.outputs,
            self.experiment_of[handle],
            made_in=run_id,
            params=self.begun[handle].params,
        )
        # MLflow shows the newest of the last step's values, and counts time in milliseconds.
        told = max(moment, before + 0.001)
        self._add(handle, step, finished.metrics, told, self.ties[handle])
        points = self.buffer.pop(handle, [])
        self.client.log_batch(run_id, metrics=points, tags=tag_entities(finished.tags))
        self._beside(run_id, lambda: self._samples(handle, finished, moment))
        self.client.set_terminated(run_id, _STATUS[finished.status], milliseconds(moment))

    def attach(self, run: str, files: Sequence[Path]) -> None:
        """Copy files to a run, named as the ledger does."""
        run_id = self.run_of.get(run)
        if run_id is not None:
            for path in files:
                self._beside(run_id, partial(self.client.log_artifact, run_id, path))

    def close(self) -> None:
        """Nothing is open."""

    def _samples(self, handle: str, finished: Finished, moment: float) -> None:
        inputs, run_id = self.begun[handle].inputs, self.external[handle]
        problems = next((each.digest for each in inputs if each.type == "problems"), "")
        for record in finished.outputs:
            path = finished.places.get(record.digest)
            if record.type == "rollouts" and path is not None:
                show_samples(
                    self.client,
                    path,
                    self.begun[handle].places.get(problems),
                    run_id=run_id,
                    experiment=self.experiment_of[handle],
                    moment=moment,
                )

    def _beside(self, run_id: str, show: Callable[[], object]) -> None:
        """Do what nobody's figures depend on: where it fails, a tag says why, and all goes on."""
        try:
            show()
        except Exception as error:  # noqa: BLE001 - a server may take runs and no artifacts
            reason = f"{type(error).__name__}: {first_line(error)}"
            self.client.set_tag(run_id, _NOT_SHOWN, reason[:LONGEST])

    def _take_up(self, handle: str, run_id: str, experiment: str) -> bool:
        """Go on in a run of an earlier attempt; False where this store does not have it."""
        from mlflow.exceptions import MlflowException

        try:
            run = self.client.get_run(run_id)
        except MlflowException:
            return False
        if run.info.lifecycle_stage != "active" or run.info.experiment_id != experiment:
            return False
        self.client.update_run(run_id, status="RUNNING")
        points = [
            p for name in run.data.metrics for p in self.client.get_metric_history(run_id, name)
        ]
        told: dict[str, int] = {}
        self.told[handle] = told
        for point in points:
            told[point.key] = max(point.step, told.get(point.key, -1))
        if points:
            self.last[handle] = max((point.step, point.timestamp / 1000) for point in points)
        self.external[handle], self.experiment_of[handle] = run_id, experiment
        return True

    def _experiment(self, name: str) -> str:
        """The experiment of a recipe: created on first use, its dead runs closed."""
        if name not in self.experiments:
            found = self.client.get_experiment_by_name(name)
            if found is None:
                self.experiments[name] = self.client.create_experiment(
                    name, self.artifacts, tags=_KIND
                )
            else:
                self.experiments[name] = found.experiment_id
                if found.lifecycle_stage == "deleted":
                    self.client.restore_experiment(found.experiment_id)
                self._close_dead_runs(found.experiment_id)
        return self.experiments[name]

    def _close_dead_runs(self, experiment: str) -> None:
        """Close runs whose process was killed: without this they would count as running forever."""
        for run in self.client.search_runs([experiment], "attributes.status = 'RUNNING'"):
            process = run.data.tags.get(_PROCESS)
            if process and is_gone(process):
                self.client.set_terminated(run.info.run_id, "KILLED")

    def _inputs(self, handle: str, inputs: Sequence[ArtifactRecord]) -> None:
        """Log tables as dataset inputs, and models as model inputs."""
        from mlflow.entities import LoggedModelInput

        ties = self.ties[handle] = self.models.tied(inputs, self.experiment_of[handle])
        datasets = [
            dataset_input(record) for record in inputs if not kind_named(record.type).is_directory
        ]
        models = [LoggedModelInput(model) for model in dict.fromkeys(ties.read.values())]
        if datasets or models:
            self.client.log_inputs(self.external[handle], datasets=datasets, models=models)


def open_mlflow(state: Path, uri: str | None, external: dict[str, str], *, owner: str) -> Any:
    """See `MlflowWriter.open`; what `posttrain.views.tracking.writer_process` calls."""
    return MlflowWriter.open(state, uri, external, owner=owner)


def prepare(*, alone: bool) -> None:
    """Import what takes seconds, before it is known where to write.

    Args:
        alone: Whether this process is the writer's own, and nobody misses what mlflow can do
            without.

    """
    if alone:
        # For an import, what is None there is not installed.
        sys.modules.update(dict.fromkeys(_UNUSED))  # type: ignore[arg-type]
    import_mlflow()
    if alone:
        # Samples are read with it.
        del sys.modules["polars"]


def import_mlflow() -> None:
    """Import what takes seconds, before it is known where to write."""
    quiet_mlflow()
    # What is imported stays; to look for garbage in it takes a fifth of the time.
    gc.disable()
    try:
        importlib.import_module("mlflow")
        if os.environ.get("MLFLOW_TRACKING_URI", "sqlite:").startswith("sqlite:"):
            importlib.import_module("mlflow.store.tracking.sqlalchemy_store")
    finally:
        gc.freeze()
        gc.enable()


def quiet_mlflow() -> None:
    """Turn off telemetry, chatter, and minutes of retries against a server that is not there."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "15")
    # It logs whole tracebacks of errors that it raises as well, and those we say in one line.
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "CRITICAL")
    logging.getLogger("alembic").setLevel(logging.ERROR)
