"""Ledger records as a tracker sees them: the same for a run that is going on and for a replay.

The MLflow view holds nothing that the ledger does not: it can be made anew.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from posttrain.provenance.actor import person
from posttrain.provenance.ledger.annotations import RECIPE_FOLDER, TRACKED
from posttrain.provenance.ledger.ledger import Ledger
from posttrain.provenance.ledger.location import PARAMS_FILE, RECIPE_FILE, REPORT_FILE
from posttrain.provenance.ledger.origins import RunOrigin, origins
from posttrain.provenance.ledger.records import ArtifactRecord, Run, StageRun, StageStatus
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.provenance.lineage.render.view import is_telling
from posttrain.stage.errors import UserError
from posttrain.views.tracking.base import Finished, Started, Status, Tracker

Find = Callable[[ArtifactRecord], Path | None]
"""Where an artifact lies, if it is known."""
KEPT_FILES = (RECIPE_FILE, PARAMS_FILE, REPORT_FILE)
"""What is shown beside a run, from the folder of its logs, as far as it is there."""

_EXECUTED: frozenset[StageStatus] = frozenset({"succeeded", "failed", "stopped"})
_NOTE = "mlflow.note.content"


def _nowhere(_record: ArtifactRecord) -> None:
    """Where nobody looks for artifacts."""


def run_started(run: Run, origin: RunOrigin | None = None, *, folder: str = ".") -> Started:
    """The start of a pipeline run.

    Args:
        run: Its record.
        origin: Account, branch and what its recipe states; runs of older versions have none.
        folder: Of its recipe, from the project's root.

    """
    known = origin or RunOrigin(stated={})
    is_job = run.command.startswith("posttrain schedule")
    tags = {
        "posttrain.run": run.id,
        "posttrain.recipe": run.recipe,
        "posttrain.command": run.command,
        "posttrain.git_dirty": str(run.git_dirty).lower(),
        "mlflow.user": person(run.actor or known.account),
        "mlflow.source.name": RECIPE_FILE if folder == "." else f"{folder}/{RECIPE_FILE}",
        "mlflow.source.type": "JOB" if is_job else "LOCAL",
        "mlflow.source.git.commit": run.git_commit or "",
        "mlflow.source.git.branch": known.branch,
        "mlflow.source.git.repoURL": known.repository,
    }
    tags = {name: value for name, value in tags.items() if value}
    params = {**{name: _plain(text) for name, text in known.stated.items()}, **run.overrides}
    return Started(run.recipe, tags=tags, params=params, at=run.started, record=run, folder=folder)


def run_finished(run: Run, stages: Sequence[StageRun] = ()) -> Finished:
    """The end of a pipeline run, with the figures by which its stages are known.

    Args:
        run: Its record.
        stages: Of it, reused ones as well.

    """
    metrics = headline_metrics(stages)
    tags = {_NOTE: _note(run, metrics)} if stages else {}
    return Finished(run.status, metrics, tags, at=run.ended, record=run)


def headline_metrics(stages: Iterable[StageRun]) -> dict[str, float]:
    """The figures by which stages are known, such as `evaluate/rl/pass_at_1`.

    A metric begins with the name of its task; here it begins with the stage's, as a recipe may
    have several stages of a task.

    Args:
        stages: Of one run, in any order; what was tried again counts as it was last.

    """
    return {
        f"{stage.stage}/{metric.partition('/')[2] or metric}": value
        for stage in stages
        for metric, value in stage.metrics.items()
        if is_telling(metric)
    }


def _note(run: Run, metrics: Mapping[str, float]) -> str:
    """What MLflow shows above a run's figures, as Markdown."""
    said = f"`{run.command}`" if run.command else f"Recipe {run.recipe}"
    rows = [f"| {name} | {value:.4g} |" for name, value in metrics.items()]
    return "\n".join([said, *(["", "| figure | value |", "|---|---|", *rows] if rows else [])])


def stage_started(
    stage: StageRun, parent: str, *, resumes: str | None = None, find: Find = _nowhere
) -> Started:
    """The start of one stage; its parameters are the key's.

    Args:
        stage: Its record, as far as it is known.
        parent: The tracker's handle of its run.
        resumes: The tracking server's id of the attempt that it goes on from.
        find: Where its inputs lie.

    """
    tags = {
        "posttrain.stage_run": stage.id,
        "posttrain.stage": stage.stage,
        "posttrain.task": stage.task,
        "posttrain.key": stage.key,
        "posttrain.attempt": str(stage.attempt),
        "mlflow.source.name": stage.task,
        "mlflow.source.type": "LOCAL",
    }
    params = {name: _plain(text) for name, text in stage.components.get("params", {}).items()}
    return Started(
        stage.stage,
        parent,
        tags,
        params,
        stage.inputs,
        stage.started,
        resumes,
        record=stage,
        places=_places(stage.inputs, find),
    )


def stage_finished(stage: StageRun, *, find: Find = _nowhere) -> Finished:
    """The end of one stage, with a tag for each output that says where and what it is.

    Args:
        stage: Its record.
        find: Where its outputs lie.

    """
    tags = {f"posttrain.output.{out.role}": f"{out.path} {out.digest}" for out in stage.outputs}
    if stage.error:
        tags["posttrain.error"] = stage.error
    timings = {f"seconds/{name}": seconds for name, seconds in stage.timings.items()}
    status: Status = "succeeded"
    if stage.status in ("failed", "stopped"):
        status = stage.status
    return Finished(
        status,
        {**timings, **stage.metrics},
        tags,
        stage.outputs,
        stage.ended,
        record=stage,
        places=_places(stage.outputs, find),
    )


def _places(records: Iterable[ArtifactRecord], find: Find) -> dict[str, Path]:
    found = {record.digest: find(record) for record in records}
    return {digest: path for digest, path in found.items() if path is not None}


class Replay(NamedTuple):
    """The tracker's own ids, by run and by stage run."""

    runs: dict[str, str]
    stages: dict[str, str]


class Remembered(NamedTuple):
    """What a replay knows beside records: origins and recipe folders by run, where things lie."""

    origins: Mapping[str, RunOrigin] = {}
    folders: Mapping[str, str] = {}
    find: Find = _nowhere
    runs: Path = Path("runs")
    """The folder with a folder of logs for each run."""


def replay(
    history: Iterable[tuple[Run, Sequence[StageRun]]],
    tracker: Tracker,
    remembered: Remembered | None = None,
) -> Replay:
    """Tell a tracker everything that a ledger remembers.

    Reused stages are skipped, as they were when it happened. Metrics of single steps are not in
    the ledger, only final ones: the curves themselves are artifacts.
    """
    told, known = Replay({}, {}), remembered or Remembered()
    for run, stages in history:
        executed = [stage for stage in stages if stage.status in _EXECUTED]
        if not executed:
            continue
        folder = known.folders.get(run.id, ".")
        started = run_started(run, known.origins.get(run.id), folder=folder)
        parent = told.runs[run.id] = tracker.start(started)
        for stage in executed:
            handle = tracker.start(stage_started(stage, parent, find=known.find))
            tracker.finish(handle, stage_finished(stage, find=known.find))
            told.stages[stage.id] = handle
        tracker.finish(parent, run_finished(run, stages))
        files = (known.runs / run.id / name for name in KEPT_FILES)
        tracker.attach(run.id, [file for file in files if file.is_file()])
    return told


def _plain(text: str) -> str:
    """A parameter as people write it: the key has JSON, in which words wear quotation marks."""
    return str(json.loads(text)) if text.startswith('"') else text


def rebuild(
    ledger: Ledger,
    state: Path,
    *,
    uri: str | None = None,
    complete: Callable[[str], object] = lambda _uri: None,
) -> int:
    """Replay the ledger, oldest run first; return the number of stages in it.

    Without `uri`, our own SQLite database is built beside the old one and then takes its place, so
    that a failure leaves the old one as it was; the ledger then knows the new ids. Curves of
    single steps are not in the ledger: they stay in the artifacts.

    Args:
        ledger: What is replayed.
        state: The folder of our own database, which nobody else may have open.
        uri: Another store to fill.
        complete: Called with the store's address once all runs are in it, to add what is not in
            the ledger; where it fails, the old database stays.

    Returns:
        How many stages were written.

    Raises:
        UserError: The store could not be written.

    """
    from posttrain.views.tracking.kinds import REMEDY, MlflowTracker
    from posttrain.views.tracking.sqlite import remove_database, take_place

    fresh = state.resolve() / "mlflow-fresh.db"
    where = uri or f"sqlite:///{fresh}"
    remove_database(fresh)
    try:
        tracker = MlflowTracker(state, uri=where)
        runs = reversed(ledger.runs())
        finder = Finder(state.resolve().parent)
        remembered = Remembered(
            origins(ledger.annotations),
            ledger.annotations.noted(RECIPE_FOLDER),
            lambda record: finder.find(record.path, record.digest, record.md5),
            state / "runs",
        )
        told = replay(((run, ledger.stage_runs(run.id)) for run in runs), tracker, remembered)
        problem = tracker.close()
        if problem is not None:
            why = problem.removesuffix(f"; {REMEDY}")
            raise UserError(f"the MLflow view was not rebuilt: {why}")
        complete(where)
        if uri is None and fresh.exists():
            take_place(fresh, state / "mlflow.db")
            ids = {each: tracker.external_id(name) for part in told for each, name in part.items()}
            ledger.annotations.note(
                TRACKED, {each: name for each, name in ids.items() if name is not None}
            )
    finally:
        remove_database(fresh)
    return len(told.stages)
