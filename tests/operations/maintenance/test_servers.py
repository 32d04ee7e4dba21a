"""Files of the servers: MLflow's artifacts and Prefect's history."""

import contextlib
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from posttrain.operations.maintenance.claims import Claims
from posttrain.operations.maintenance.prefect import history_nodes, remove_history
from posttrain.operations.maintenance.state import mlflow_nodes
from posttrain.provenance.ledger import open_ledger
from posttrain.provenance.ledger.records import Run

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def test_mlflow_artifacts_of_runs_that_are_not_kept_go_whoever_made_the_database(tmp_path):
    ids = {name: name[0] * 32 for name in ("a_kept", "b_old", "c_deleted", "d_foreign")}
    for folder in ids.values():
        (tmp_path / "mlartifacts" / folder / "artifacts").mkdir(parents=True)
        (tmp_path / "mlartifacts" / folder / "artifacts" / "plot.png").write_bytes(b"x" * 10)
    (tmp_path / "mlartifacts" / "notes").mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.execute("CREATE TABLE runs (run_uuid TEXT, lifecycle_stage TEXT)")
        rows = [(ids["a_kept"], "active"), (ids["c_deleted"], "deleted")]
        database.executemany("INSERT INTO runs VALUES (?, ?)", rows)
    with open_ledger(tmp_path / "ledger.db") as ledger:
        for name in ("a_kept", "b_old", "c_deleted"):
            ledger.begin_run(Run(name, "r", time.time()))
            ledger.finish_run(name, "succeeded", time.time(), mlflow_run_id=ids[name])
        claims = Claims(kept_runs={"a_kept", "c_deleted"})
        found = {node.name[0]: node for node in mlflow_nodes(tmp_path, claims, ledger)}
    # The database is not MLflow's, so that nothing is known to be deleted.
    assert {name for name, node in found.items() if not node.reasons} == {"b"}
    assert set(found["b"].parts.values()) == {10}
    assert found.keys() == set("abcd")


def _fill(database, flows):
    """Prefect's own tables by its own models: a flow run with all that hangs on it, by name."""
    from prefect.server.database.orm_models import (
        Artifact,
        Base,
        Flow,
        FlowRun,
        Log,
        TaskRun,
        TaskRunState,
    )
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session
    from sqlalchemy.schema import CreateTable

    engine = create_engine(f"sqlite:///{database}")
    # Without the indices: one of them is declared twice for SQLite.
    with engine.begin() as connection:
        for each in Base.metadata.sorted_tables:
            connection.execute(CreateTable(each))
    with Session(engine) as session:
        session.add(Flow(id=uuid4(), name="flow"))
        session.flush()
        flow_id = session.query(Flow.id).scalar()
        for name, (state, end) in flows.items():
            run = FlowRun(id=uuid4(), flow_id=flow_id, name=name, state_type=state, end_time=end)
            session.add(run)
            session.flush()
            task = TaskRun(id=uuid4(), flow_run_id=run.id, task_key=name, dynamic_key="0")
            session.add(task)
            session.flush()
            session.add_all(
                [
                    TaskRunState(task_run_id=task.id, type="COMPLETED", name="done"),
                    Log(flow_run_id=run.id, name=name, level=20, message="m", timestamp=NOW),
                    Artifact(flow_run_id=run.id, key=name),
                ]
            )
        session.commit()
        found = dict(session.query(FlowRun.name, FlowRun.id).all())
    engine.dispose()
    return {name: str(each) for name, each in found.items()}


@pytest.mark.slow
def test_history_of_ended_runs_that_nobody_keeps_goes_with_all_that_hangs_on_it(tmp_path):
    path = tmp_path / "prefect.db"
    flows = {
        "old": ("COMPLETED", NOW - timedelta(days=30)),
        "kept": ("COMPLETED", NOW - timedelta(days=30)),
        "recent": ("FAILED", NOW + timedelta(days=1)),
        "running": ("RUNNING", None),
        "planned": ("SCHEDULED", None),
    }
    ids = _fill(path, flows)
    nodes = list(history_nodes(path, {ids["kept"]}, before=NOW, in_use=None))
    gone = [node.name for node in nodes if not node.reasons]
    assert gone == [ids["old"]]
    assert sum(size for node in nodes for size in node.parts.values()) == path.stat().st_size
    assert all(
        node.reasons for node in history_nodes(path, set(), before=NOW, in_use="server is up")
    )
    remove_history(path, gone)
    left = {each.replace("-", "") for name, each in ids.items() if name != "old"}
    with contextlib.closing(sqlite3.connect(path)) as database:
        for table, column in (
            ("flow_run", "id"),
            ("task_run", "flow_run_id"),
            ("log", "flow_run_id"),
            ("artifact", "flow_run_id"),
        ):
            rows = database.execute(f"SELECT {column} FROM {table}")
            assert {row[0].replace("-", "") for row in rows} == left, table
        assert database.execute("SELECT COUNT(*) FROM task_run_state").fetchone() == (4,)


def test_a_database_that_is_no_database_stays(tmp_path):
    path = tmp_path / "prefect.db"
    path.write_bytes(b"not sqlite at all" * 100)
    nodes = list(history_nodes(path, set(), before=NOW, in_use=None))
    assert [bool(node.reasons) for node in nodes] == [True]
    assert list(history_nodes(tmp_path / "none.db", set(), before=NOW, in_use=None)) == []
