"""A ledger in a SQLite file, by the standard library's driver."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posttrain.provenance.ledger.store import Params, Row, row_type
from posttrain.stage.errors import UserError

BUSY_SECONDS = 60.0
_REMEDIES = {
    sqlite3.SQLITE_FULL: "free some disk space and run again",
    sqlite3.SQLITE_IOERR: "check the disk and its free space",
    sqlite3.SQLITE_READONLY: "make its folder writable",
    sqlite3.SQLITE_CANTOPEN: "check the path and its rights",
    sqlite3.SQLITE_BUSY: "another process holds it; wait for that one, or stop it",
    sqlite3.SQLITE_CORRUPT: "restore it from a copy, or import an export of it",
    sqlite3.SQLITE_NOTADB: "that file is something else; name another path",
}


class SqliteStore:
    """A SQLite file in WAL mode, so that readers never wait for the writer.

    `synchronous=NORMAL`: a killed process loses nothing; a power cut may lose the last
    transactions, never tear one, and the price of a lost record is running that stage again.
    """

    dialect = "sqlite"

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path
        self._lock = threading.RLock()
        with self._explained("opened"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        try:
            return _prepared(str(self._path))
        except sqlite3.OperationalError:
            # WAL needs to write beside the file. Where nobody can, nobody else writes either.
            if not self._path.exists() or os.access(self._path.parent, os.W_OK):
                raise
            return _prepared(f"{self._path.absolute().as_uri()}?immutable=1")

    @contextmanager
    def _explained(self, attempted: str) -> Iterator[None]:
        """Turn what the machine did (disk full, no rights, damage) into a sentence for the user."""
        try:
            yield
        except OSError as error:
            raise UserError(f"the ledger {self._path} cannot be {attempted}: {error}") from None
        except sqlite3.DatabaseError as error:
            code = (error.sqlite_errorcode or 0) & 0xFF
            if code not in _REMEDIES:
                raise
            remedy = _REMEDIES[code]
            raise UserError(
                f"the ledger {self._path} cannot be {attempted}: {error}; {remedy}"
            ) from None

    def query(self, sql: str, params: Params | None = None) -> list[Row]:
        """Rows of a SELECT, with the names of its columns."""
        with self._lock, self._explained("read"):
            cursor = self._connection.execute(sql, dict(params or {}))
            row = row_type(tuple(each[0] for each in cursor.description or ()))
            return list(map(row._make, cursor.fetchall()))

    def column(self, sql: str, params: Params | None = None) -> list[Any]:
        """The first column of a SELECT."""
        with self._lock, self._explained("read"):
            rows = self._connection.execute(sql, dict(params or {})).fetchall()
        return [row[0] for row in rows]

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None:
        """One statement for each of `rows`."""
        with self._lock:
            self._connection.executemany(sql, [dict(row) for row in rows])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. IMMEDIATE waits for the other writer now instead of failing later."""
        with self._lock, self._explained("written"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _prepared(target: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        target,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=target.startswith("file:"),
    )
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA mmap_size=1073741824")
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        _switch_to_wal(connection)
    return connection


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """SQLite does not wait here for its busy timeout, so the first openers take turns."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
