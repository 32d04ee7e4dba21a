"""Prefect's history in the database beside the runs: what ended long ago and is not kept.

Through SQL rather than through its API: that would start a server, for minutes. Only tables that
the pinned Prefect has are touched, and only where no server of `posttrain up` uses the file.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from posttrain.operations.maintenance.policy import StoredItem

# Its tables without a row: what no removal gives back.
_EMPTY_BYTES = 1_250_000
_ENDED = "('COMPLETED','FAILED','CANCELLED','CRASHED')"
_FLOWS = f"SELECT id FROM flow_run WHERE state_type IN {_ENDED} AND end_time < :before"


def history_nodes(
    database: Path, kept: set[str], *, before: str, in_use: str | None
) -> Iterator[StoredItem]:
    """One node for what is kept and one for each flow run that may go; bytes are shares of all."""
    if not database.is_file():
        return
    size = database.stat().st_size
    try:
        with contextlib.closing(_open(database)) as connection:
            ended = [row[0] for row in connection.execute(_FLOWS, {"before": before})]
            total = connection.execute("SELECT COUNT(*) FROM flow_run").fetchone()[0]
    except sqlite3.Error as error:
        yield StoredItem(
            "history", "prefect", {str(database): size}, reasons=(f"unreadable: {error}",)
        )
        return
    gone = [flow for flow in ended if flow not in kept] if in_use is None else []
    share = max(0, size - _EMPTY_BYTES) // max(total, 1)
    reason = in_use or "runs that are kept, and the database itself"
    rest = {str(database): size - share * len(gone)}
    yield StoredItem("history", "prefect", rest, reasons=(reason,))
    for flow in gone:
        yield StoredItem(flow, "prefect", {f"flow_run {flow}": share})


def remove_history(database: Path, flows: list[str]) -> None:
    """Delete flow runs with tasks, states, logs and events in one transaction; then shrink."""
    if not flows:
        return
    with contextlib.closing(_open(database)) as connection:
        connection.execute("PRAGMA foreign_keys=ON")
        with connection:
            connection.execute("CREATE TEMP TABLE gone (id TEXT PRIMARY KEY)")
            connection.executemany("INSERT OR IGNORE INTO gone VALUES (?)", [(f,) for f in flows])
            for sql in (
                "DELETE FROM log WHERE flow_run_id IN (SELECT id FROM gone)",
                "DELETE FROM artifact WHERE flow_run_id IN (SELECT id FROM gone)",
                "DELETE FROM event_resources WHERE event_id IN (SELECT event_id FROM"
                " event_resources WHERE resource_id IN (SELECT 'prefect.flow-run.'||id FROM gone)"
                " OR resource_id IN (SELECT 'prefect.task-run.'||id FROM task_run"
                " WHERE flow_run_id IN (SELECT id FROM gone)))",
                "DELETE FROM events WHERE id NOT IN (SELECT event_id FROM event_resources)",
                "DELETE FROM task_run_state WHERE task_run_id IN (SELECT id FROM task_run"
                " WHERE flow_run_id IN (SELECT id FROM gone))",
                "DELETE FROM task_run WHERE flow_run_id IN (SELECT id FROM gone)",
                "DELETE FROM flow_run_state WHERE flow_run_id IN (SELECT id FROM gone)",
                "DELETE FROM flow_run WHERE id IN (SELECT id FROM gone)",
            ):
                connection.execute(sql)
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _open(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(database, timeout=20)
