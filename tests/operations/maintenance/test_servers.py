"""Files of the servers: MLflow's artifacts and Prefect's history."""

import contextlib
import sqlite3
import time

from posttrain.operations.maintenance.claims import Claims
from posttrain.operations.maintenance.prefect import history_nodes, remove_history
from posttrain.operations.maintenance.state import mlflow_nodes
from posttrain.provenance.ledger import open_ledger
from posttrain.provenance.ledger.records import Run

NOW = "2026-11-01 00:00:00"


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


def _database(folder):
    """Prefect's own tables, made by Prefect's own models."""
    from prefect.server.database.orm_models import Base
    from sqlalchemy import create_engine
    from sqlalchemy.schema import CreateTable

    path = folder / "prefect.db"
    engine = create_engine(f"sqlite:///{path}")
    # Without the indices: one of them is declared twice for SQLite.
    with engine.begin() as connection:
        for each in Base.metadata.sorted_tables:
            connection.execute(CreateTable(each))
    engine.dispose()
    return path


def _insert(database, table, **values):
    """Insert a row; other columns that must have a value get an empty one."""
    for _, name, kind, required, default, _ in database.execute(f"PRAGMA table_info({table})"):
        if required and default is None and name not in values:
            values[name] = 0 if kind in ("INTEGER", "FLOAT", "BOOLEAN") else "{}"
    marks = ",".join("?" * len(values))
    names = ",".join(f'"{name}"' for name in values)
    database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))


def test_history_of_ended_runs_that_nobody_keeps_goes_with_all_that_hangs_on_it(tmp_path):
    path = _database(tmp_path)
    flows = {
        "old": ("COMPLETED", "2026-10-01 00:00:00"),
        "kept": ("COMPLETED", "2026-10-01 00:00:00"),
        "recent": ("FAILED", "2026-11-02 00:00:00"),
        "running": ("RUNNING", None),
        "planned": ("SCHEDULED", None),
    }
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        _insert(database, "flow", id="f", name="flow")
        for name, (state, end) in flows.items():
            _insert(
                database,
                "flow_run",
                id=name,
                flow_id="f",
                name=name,
                state_type=state,
                end_time=end,
            )
            _insert(database, "task_run", id=f"task-{name}", flow_run_id=name, task_key=name)
            _insert(database, "task_run_state", id=f"s-{name}", task_run_id=f"task-{name}")
            _insert(database, "log", id=f"log-{name}", flow_run_id=name)
            _insert(database, "events", id=f"event-{name}")
            _insert(
                database,
                "event_resources",
                id=f"r-{name}",
                event_id=f"event-{name}",
                resource_id=f"prefect.flow-run.{name}",
            )
    nodes = list(history_nodes(path, {"kept"}, before=NOW, in_use=None))
    gone = [node.name for node in nodes if not node.reasons]
    assert gone == ["old"]
    assert sum(size for node in nodes for size in node.parts.values()) == path.stat().st_size
    assert all(
        node.reasons for node in history_nodes(path, {"kept"}, before=NOW, in_use="server is up")
    )
    remove_history(path, gone)
    with contextlib.closing(sqlite3.connect(path)) as database:
        for table, column in (
            ("flow_run", "id"),
            ("task_run", "flow_run_id"),
            ("log", "flow_run_id"),
        ):
            left = {row[0] for row in database.execute(f"SELECT {column} FROM {table}")}
            assert left == flows.keys() - {"old"}, table
        assert database.execute("SELECT COUNT(*) FROM events").fetchone() == (4,)
        assert database.execute("SELECT COUNT(*) FROM task_run_state").fetchone() == (4,)


def test_a_database_that_is_no_database_stays(tmp_path):
    path = tmp_path / "prefect.db"
    path.write_bytes(b"not sqlite at all" * 100)
    nodes = list(history_nodes(path, set(), before=NOW, in_use=None))
    assert [bool(node.reasons) for node in nodes] == [True]
    assert list(history_nodes(tmp_path / "none.db", set(), before=NOW, in_use=None)) == []
