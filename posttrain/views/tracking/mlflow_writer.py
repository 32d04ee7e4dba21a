"""Tracked events as MLflow entities; runs in a process of its own, with explicit run ids."""

import gc
import importlib
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posttrain.provenance.ledger.processes import is_gone
from posttrain.provenance.ledger.records import ArtifactRecord
from posttrain.stage.artifact_kinds import kind_named
from posttrain.stage.interrupts import held_back
from posttrain.views.tracking.base import Finished, Started
from posttrain.views.tracking.blank import keep_blank, lay_blank
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
# What MLflow takes: names of letters, digits and a few marks, values of some thousand characters.
_FOREIGN = re.compile(r"[^\w\-. :/]")
_LONGEST_NAME, _LONGEST = 250, 5000
_PROCESS = "posttrain.process"


@dataclass
class MlflowWriter:
    """Writes to one MLflow store. `external` maps our ids to MLflow's; `owner` is whose runs."""

    client: Any
    artifacts: str | None
    external: dict[str, str]
    owner: str
    experiments: dict[str, str] = field(default_factory=dict)
    experiment_of: dict[str, str] = field(default_factory=dict)
    model_of: dict[str, str] = field(default_factory=dict)
    buffer: dict[str, list[Any]] = field(default_factory=dict)
    last: dict[str, tuple[int, float]] = field(default_factory=dict)
    told: dict[str, dict[str, int]] = field(default_factory=dict)

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
        tags = {key: value[:_LONGEST] for key, value in started.tags.items()}
        tags[_PROCESS] = self.owner
        if started.parent is None:
            experiment = self._experiment(started.name)
        else:
            experiment = self.experiment_of[started.parent]
            tags["mlflow.parentRunId"] = self.external[started.parent]
        if started.resumes and self._take_up(handle, started.resumes, experiment):
            self.client.log_batch(started.resumes, tags=_tags(tags))
            return
        run = self.client.create_run(
            experiment, start_time=_milliseconds(moment), tags=tags, run_name=started.name
        )
        self.external[handle], self.experiment_of[handle] = run.info.run_id, experiment
        self.client.log_batch(run.info.run_id, params=_params(started.params))
        self._inputs(run.info.run_id, started.inputs, experiment)

    def metrics(self, handle: str, step: int, values: Mapping[str, float], moment: float) -> None:
        """Buffer the metrics of one step, without what an earlier attempt has sent."""
        told = self.told.get(handle)
        if told:
            values = {k: value for k, value in values.items() if step > told.get(_name(k), -1)}
        self._add(handle, step, values, moment)

    def _add(self, handle: str, step: int, values: Mapping[str, float], moment: float) -> None:
        from mlflow.entities import Metric

        self.last[handle] = max((step, moment), self.last.get(handle, (0, 0.0)))
        points = self.buffer.setdefault(handle, [])
        stamp = _milliseconds(moment)
        points += [Metric(_name(key), float(value), stamp, step) for key, value in values.items()]
        if len(points) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Write the buffered metrics."""
        for handle, points in self.buffer.items():
            self.client.log_batch(self.external[handle], metrics=points)
        self.buffer.clear()

    def finish(self, handle: str, finished: Finished, moment: float) -> None:
        """Write final metrics at the last step, tags and models, then close the run."""
        step, before = self.last.get(handle, (0, 0.0))
        # MLflow shows the newest of the last step's values, and counts time in milliseconds.
        self._add(handle, step, finished.metrics, max(moment, before + 0.001))
        run_id = self.external[handle]
        points = self.buffer.pop(handle, [])
        self.client.log_batch(run_id, metrics=points, tags=_tags(finished.tags))
        self._models(handle, finished.outputs)
        self.client.set_terminated(run_id, _STATUS[finished.status], _milliseconds(moment))

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

    def _inputs(self, run_id: str, inputs: Sequence[ArtifactRecord], experiment: str) -> None:
        """Log tables as dataset inputs, and models that this view knows as model inputs."""
        from mlflow.entities import LoggedModelInput

        datasets = [
            _dataset_input(record) for record in inputs if not kind_named(record.type).is_directory
        ]
        known = (
            self._model(record, experiment)
            for record in inputs
            if kind_named(record.type).is_directory
        )
        models = [LoggedModelInput(model) for model in known if model]
        if datasets or models:
            self.client.log_inputs(run_id, datasets=datasets, models=models)

    def _model(self, record: ArtifactRecord, experiment: str) -> str | None:
        """MLflow's id of a model, by its digest: made in this run, or in an earlier one."""
        if record.digest not in self.model_of:
            found = self.client.search_logged_models(
                [experiment],
                filter_string=f"tags.`posttrain.sha256` = '{record.digest}'",
                max_results=1,
            )
            self.model_of.update((record.digest, model.model_id) for model in found)
        return self.model_of.get(record.digest)

    def _models(self, handle: str, outputs: Sequence[ArtifactRecord]) -> None:
        """Log checkpoints as external models: MLflow gets a name for the weights, not a copy."""
        from mlflow.entities import LoggedModelOutput, LoggedModelStatus

        logged = []
        for record in outputs:
            if not kind_named(record.type).is_directory:
                continue
            model = self.client.create_logged_model(
                self.experiment_of[handle],
                name=f"{record.producer}-{record.role}" if record.producer else record.role,
                source_run_id=self.external[handle],
                tags={"mlflow.model.isExternal": "true", **_source_tags(record)},
                model_type=record.type,
            )
            self.client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
            self.model_of[record.digest] = model.model_id
            logged.append(LoggedModelOutput(model.model_id, step=0))
        if logged:
            self.client.log_outputs(self.external[handle], logged)


def _dataset_input(record: ArtifactRecord) -> Any:
    """A dataset input; MLflow takes 36 characters of digest, the tag has all of it."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(
        name=f"{record.producer}.{record.role}" if record.producer else record.role,
        digest=record.digest[:36],
        source_type="local",
        source=json.dumps({"uri": record.path}),
        profile=json.dumps({"rows": record.rows, "bytes": record.size}),
    )
    tags = {"mlflow.data.context": record.role, **_source_tags(record)}
    return DatasetInput(dataset, [InputTag(key, value) for key, value in tags.items()])


def _source_tags(record: ArtifactRecord) -> dict[str, str]:
    tags = {"posttrain.source": f"dvc://{record.path}", "posttrain.sha256": record.digest}
    return tags | ({"posttrain.md5": record.md5} if record.md5 else {})


def _tags(tags: Mapping[str, str]) -> list[Any]:
    from mlflow.entities import RunTag

    return [RunTag(_name(key), value[:_LONGEST]) for key, value in tags.items()]


def _params(params: Mapping[str, object]) -> list[Any]:
    from mlflow.entities import Param

    return [Param(_name(key), str(value)[:_LONGEST]) for key, value in params.items()]


def _name(text: str) -> str:
    return _FOREIGN.sub("_", text)[:_LONGEST_NAME]


def _milliseconds(moment: float) -> int:
    return int(moment * 1000)


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
