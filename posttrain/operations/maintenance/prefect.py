"""Prefect's history in the database beside the runs: what ended long ago and is not kept.

By Prefect's own functions on its tables, not through its HTTP API: that would start a server. They
take seconds to import, hence only where there is a history and no server of `posttrain up` uses
it. Events of what went stay as long as Prefect keeps events: a week.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from posttrain.operations.maintenance.policy import StoredItem

# Its tables without a row: what no removal gives back.
_EMPTY_BYTES = 1_250_000
_Answer = TypeVar("_Answer")


def history_nodes(
    database: Path, kept: set[str], *, before: datetime, in_use: str | None
) -> Iterator[StoredItem]:
    """One node for what is kept and one for each flow run that may go; bytes are shares of all."""
    if not database.is_file():
        return
    size = database.stat().st_size
    total, gone, reason = 0, [], in_use
    if in_use is None:
        reason = "runs that are kept, and the database itself"
        from sqlalchemy.exc import SQLAlchemyError

        try:
            total, ended = _with_prefect(database, lambda db: _read_ended(db, before))
            gone = [flow_run for flow_run in ended if flow_run not in kept]
        except SQLAlchemyError as error:
            reason = f"unreadable: {error}"
    share = max(0, size - _EMPTY_BYTES) // max(total, 1)
    rest = {str(database): size - share * len(gone)}
    yield StoredItem("history", "prefect", rest, reasons=(str(reason),))
    for flow_run in gone:
        yield StoredItem(flow_run, "prefect", {f"flow_run {flow_run}": share})


def remove_history(database: Path, flow_runs: list[str]) -> None:
    """Delete flow runs with their tasks, states, logs and artifacts; then shrink the database."""
    if not flow_runs:
        return
    _with_prefect(database, lambda db: _delete(db, flow_runs))
    with (
        contextlib.closing(sqlite3.connect(database, timeout=20)) as connection,
        contextlib.suppress(sqlite3.OperationalError),
    ):
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _with_prefect(database: Path, ask: Callable[[Any], Coroutine[Any, Any, _Answer]]) -> _Answer:
    """The answer of Prefect's interface to the database."""
    from prefect.server.database import provide_database_interface
    from prefect.server.database.configurations import AioSqliteConfiguration
    from prefect.server.database.dependencies import temporary_database_config
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, temporary_settings

    async def answer() -> _Answer:
        interface = provide_database_interface()
        try:
            return await ask(interface)
        finally:
            await (await interface.engine()).dispose()

    place = f"sqlite+aiosqlite:///{database}"
    # The settings say what kind of database it is, but only at their first use where it lies.
    with (
        temporary_settings({PREFECT_API_DATABASE_CONNECTION_URL: place}),
        temporary_database_config(AioSqliteConfiguration(connection_url=place)),
    ):
        return asyncio.run(answer())


async def _read_ended(db: Any, before: datetime) -> tuple[int, list[str]]:
    """How many flow runs there are, and which of them ended before a time."""
    from prefect.server.schemas.states import TERMINAL_STATES
    from sqlalchemy import func, select

    async with db.session_context() as session:
        total = await session.scalar(select(func.count()).select_from(db.FlowRun))
        ended = select(db.FlowRun.id).where(
            db.FlowRun.state_type.in_(TERMINAL_STATES), db.FlowRun.end_time < before
        )
        return total, [str(flow_run) for flow_run in await session.scalars(ended)]


async def _delete(db: Any, flow_runs: list[str]) -> None:
    from prefect.server.models.flow_runs import delete_flow_runs
    from prefect.server.services import db_vacuum

    async with db.session_context(begin_transaction=True) as session:
        await delete_flow_runs(session, [UUID(flow_run) for flow_run in flow_runs])
    await db_vacuum.vacuum_orphaned_logs(db=db)
    await db_vacuum.vacuum_orphaned_artifacts(db=db)
