"""MLflow answers after the first stages are over; the ledger knows its ids all the same."""

import json
import os
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posttrain.pipeline.execution.display import Display
from posttrain.pipeline.execution.local import run_locally
from posttrain.pipeline.execution.session import open_session
from posttrain.provenance.ledger import StageRun, open_ledger
from posttrain.views.tracking.kinds import MlflowTracker
from posttrain.views.tracking.projection import rebuild

_VOLATILE = ("mlflow.user", "mlflow.parentRunId", "posttrain.process")


def told(state: Path) -> dict[str, Any]:
    """Every run of the view, by the id that the ledger has for it."""
    from mlflow import MlflowClient

    # MLflow keeps a database open by its name, and this one is replaced by another.
    copy = state / f"{uuid.uuid4().hex}.db"
    with sqlite3.connect(state / "mlflow.db") as source, sqlite3.connect(copy) as target:
        source.backup(target)
    client = MlflowClient(tracking_uri=f"sqlite:///{copy}")
    with open_ledger(state / "ledger.db") as ledger:
        stages = [*ledger.every_stage_run()]
        ids = {each.stage: each.mlflow_run_id for each in stages}
        ids["run"] = ledger.runs()[0].mlflow_run_id
    runs = {name: client.get_run(str(external)) for name, external in ids.items()}
    return {
        name: json.dumps(
            [
                run.info.run_name,
                run.info.status,
                run.info.start_time,
                run.info.end_time,
                run.data.params,
                run.data.metrics,
                {key: value for key, value in run.data.tags.items() if key not in _VOLATILE},
                [item.dataset.digest for item in run.inputs.dataset_inputs],
            ],
            sort_keys=True,
        )
        for name, run in runs.items()
    }


@pytest.mark.slow
def test_ids_that_come_after_the_run_are_noted_and_renewed_with_the_view(
    toy: Any, monkeypatch: Any
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    state = toy.root / ".posttrain"
    tracker = MlflowTracker(state)
    # As slow as it gets: nothing is known to MLflow before the run is over.
    write: Callable[[], None] = tracker._write
    monkeypatch.setattr(tracker, "_write", lambda: None)
    with open_session(toy.root) as session, session.workspace.locked("test"):
        session.run(
            session.planner.plan(),
            runner=lambda executor, names: run_locally(executor, names, slots=1),
            tracker=tracker,
            display=Display(),
            command="test",
        )
        assert all(record.mlflow_run_id is None for record in executed(state))
        tracker._operations.put(None)
        write()
        assert tracker.close() is None
    assert all(record.mlflow_run_id for record in executed(state))
    live = told(state)
    assert set(live) == {"first", "second", "third", "run"}

    before = [record.mlflow_run_id for record in executed(state)]
    with open_ledger(state / "ledger.db") as ledger:
        assert rebuild(ledger, state) == 3
    assert not set(before) & {record.mlflow_run_id for record in executed(state)}
    assert told(state) == live


def executed(state: Path) -> list[StageRun]:
    with open_ledger(os.fspath(state / "ledger.db")) as ledger:
        return list(ledger.every_stage_run())
