"""MLflow's SQLite database, written without a wait for the disk at each of ten commits a stage."""

import contextlib
import sqlite3
from pathlib import Path


def commit_sooner() -> None:
    """Let MLflow's databases of this process keep a write-ahead log.

    It is synced when it is folded in, so that a power cut can take the newest entries and damages
    nothing. MLflow's own default waits for the disk twice a commit, which for a stage that does
    little takes longer than the stage.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    if not event.contains(Engine, "connect", _write_ahead):
        event.listen(Engine, "connect", _write_ahead)


def _write_ahead(connection: object, _record: object) -> None:
    # Not ours to change is a file system without shared memory: there all stays as it was.
    if isinstance(connection, sqlite3.Connection):
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint=10000")


def take_place(fresh: Path, database: Path) -> None:
    """Put what a database holds in the place of another, of which no log may stay.

    A log would be folded in. The bytes are those of a copy, as MLflow keeps the databases open
    that it has written, until its process ends.

    Args:
        fresh: The database to copy, in any mode of journal.
        database: What is replaced; no other process may have it open.

    """
    whole = database.with_name(f"{database.stem}-whole.db")
    remove_database(whole)
    with contextlib.closing(sqlite3.connect(fresh)) as connection:
        connection.execute("VACUUM INTO ?", (str(whole),))
    with contextlib.closing(sqlite3.connect(whole)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    for log in _logs(database):
        log.unlink(missing_ok=True)
    whole.replace(database)


def remove_database(database: Path) -> None:
    """Remove a database and its logs, where there are any."""
    for path in (database, *_logs(database)):
        path.unlink(missing_ok=True)


def _logs(database: Path) -> list[Path]:
    return [database.with_name(database.name + end) for end in ("-wal", "-shm")]
