"""Ledger records as a tracker sees them: the same for a run that is going on and for a replay.

The MLflow view holds nothing that the ledger does not: it can be made anew.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from posttrain.provenance.ledger.annotations import TRACKED
from posttrain.provenance.ledger.ledger import Ledger
from posttrain.provenance.ledger.records import Run, StageRun, StageStatus
from posttrain.stage.errors import UserError
from posttrain.views.tracking.base import Finished, Started, Status, Tracker

_EXECUTED: frozenset[StageStatus] = frozenset({"succeeded", "failed", "stopped"})


def run_started(run: Run) -> Started:
    """The start of a pipeline run."""
    tags = {
        "posttrain.run": run.id,
        "posttrain.recipe": run.recipe,
        "posttrain.command": run.command,
        "posttrain.git_dirty": str(run.git_dirty).lower(),
    }
    if run.git_commit:
        tags["mlflow.source.git.commit"] = run.git_commit
    return Started(run.recipe, tags=tags, params=run.overrides, at=run.started)


def run_finished(run: Run) -> Finished:
    """The end of a pipeline run."""
    return Finished(run.status, at=run.ended)


def stage_started(stage: StageRun, parent: str, *, resumes: str | None = None) -> Started:
    """The start of one stage inside the tracked run `parent`; its parameters are the key's."""
    tags = {
        "posttrain.stage_run": stage.id,
        "posttrain.stage": stage.stage,
        "posttrain.task": stage.task,
        "posttrain.key": stage.key,
        "posttrain.attempt": str(stage.attempt),
    }
    params = {name: _plain(text) for name, text in stage.components.get("params", {}).items()}
    return Started(stage.stage, parent, tags, params, stage.inputs, stage.started, resumes)


def stage_finished(stage: StageRun) -> Finished:
    """The end of one stage, with a tag for each output that says where and what it is."""
    tags = {f"posttrain.output.{out.role}": f"{out.path} {out.digest}" for out in stage.outputs}
    if stage.error:
        tags["posttrain.error"] = stage.error
    timings = {f"seconds/{name}": seconds for name, seconds in stage.timings.items()}
    status: Status = "succeeded"
    if stage.status in ("failed", "stopped"):
        status = stage.status
    return Finished(status, {**timings, **stage.metrics}, tags, stage.outputs, stage.ended)


class Replay(NamedTuple):
    """The tracker's own ids, by run and by stage run."""

    runs: dict[str, str]
    stages: dict[str, str]


def replay(history: Iterable[tuple[Run, Sequence[StageRun]]], tracker: Tracker) -> Replay:
    """Tell a tracker everything that a ledger remembers.

    Reused stages are skipped, as they were when it happened. Metrics of single steps are not in
    the ledger, only final ones: the curves themselves are artifacts.
    """
    told = Replay({}, {})
    for run, stages in history:
        executed = [stage for stage in stages if stage.status in _EXECUTED]
        if not executed:
            continue
        parent = told.runs[run.id] = tracker.start(run_started(run))
        for stage in executed:
            handle = tracker.start(stage_started(stage, parent))
            tracker.finish(handle, stage_finished(stage))
            told.stages[stage.id] = handle
        tracker.finish(parent, run_finished(run))
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
    from posttrain.views.tracking.mlflow import REMEDY, MlflowTracker
    from posttrain.views.tracking.sqlite import remove_database, take_place

    fresh = state.resolve() / "mlflow-fresh.db"
    where = uri or f"sqlite:///{fresh}"
    remove_database(fresh)
    try:
        tracker = MlflowTracker(state, uri=where)
        runs = reversed(ledger.runs())
        told = replay(((run, ledger.stage_runs(run.id)) for run in runs), tracker)
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
