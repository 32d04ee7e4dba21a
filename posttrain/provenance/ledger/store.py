"""How SQL reaches a database: rows with names, and a file of SQLite by the standard library."""

import os
import sqlite3
import threading
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from posttrain.stage.errors import UserError
from posttrain.stage.write_ahead import BUSY_SECONDS, write_ahead

Row = Any
"""A named tuple: the value of column `stage` is `row.stage`."""
Params = Mapping[str, object]

_CHUNK = 500
_NO_ROOM = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_REMEDIES = {
    sqlite3.SQLITE_FULL: "free some disk space and run again",
    sqlite3.SQLITE_IOERR: "check the disk and its free space",
    sqlite3.SQLITE_READONLY: "make its folder writable",
    sqlite3.SQLITE_CANTOPEN: "check the path and its rights",
    sqlite3.SQLITE_BUSY: "another process holds it; wait for that one, or stop it",
    sqlite3.SQLITE_CORRUPT: "restore it from a copy, or import an export of it",
    sqlite3.SQLITE_NOTADB: "that file is something else; name another path",
}


class Store(Protocol):
    """One database. SQL names its parameters `:like_this`; writes happen inside `transaction`."""

    url: str
    dialect: str
    """`sqlite` or `postgresql`: where the two differ, `dialects` has a text for each."""

    def query(self, sql: str, params: Params | None = None) -> list[Row]:
        """Read rows.

        Args:
            sql: A SELECT.
            params: Values of its parameters.

        Returns:
            Named tuples, with the names of its columns.

        """

    def column(self, sql: str, params: Params | None = None) -> list[Any]:
        """Read one column: for long results, at half the price of rows.

        Args:
            sql: A SELECT.
            params: Values of its parameters.

        Returns:
            Values of its first column.

        """

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None:
        """Execute a statement once for each of `rows`.

        Args:
            sql: An INSERT, UPDATE or DELETE.
            rows: Values of its parameters, one mapping for each time.

        """

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; one writer at a time."""

    def close(self) -> None:
        """Give the connection back."""


@cache
def row_type(columns: tuple[str, ...]) -> Any:
    """Make the named tuple for rows of these columns; one without a name is `_0`, `_1`, ...

    >>> row_type(("id", "COUNT(*)"))("r1", 3)
    Row(id='r1', _1=3)

    Args:
        columns: Their names, as the database gives them.

    Returns:
        The class.

    """
    return namedtuple("Row", columns, rename=True)  # noqa: PYI024 - its fields are a query's


def insert_rows(store: Store, table: str, rows: Sequence[Params], *, conflict: str = "") -> None:
    """Insert rows that all have the same columns.

    Args:
        store: The database, in a transaction.
        table: Name of the table.
        rows: Values by column.
        conflict: What becomes of a row that is there, such as `DO NOTHING`; else it is an error.

    """
    if rows:
        names, values = ",".join(rows[0]), ",".join(f":{column}" for column in rows[0])
        tail = f" ON CONFLICT {conflict}" if conflict else ""
        store.execute_many(f"INSERT INTO {table} ({names}) VALUES ({values}){tail}", rows)


def query_in(
    store: Store, sql: str, values: Sequence[object], *, fixed: Params | None = None
) -> list[Row]:
    """Run `sql`, whose `{values}` stands for the list of an IN, for any number of values.

    Args:
        store: The database.
        sql: A SELECT with one `{values}`.
        values: The list; asked for 500 at a time, so rows come in no order.
        fixed: Parameters that are not in that list.

    Returns:
        The rows of all those queries.

    """
    rows: list[Row] = []
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        params = {f"v{index}": value for index, value in enumerate(chunk)}
        names = ",".join(f":{name}" for name in params)
        rows += store.query(sql.replace("{values}", names), {**params, **(fixed or {})})
    return rows


@contextmanager
def explained(ledger: str, attempted: str) -> Iterator[None]:
    """Turn what the machine did (disk full, no rights, damage) into a sentence for the user.

    Args:
        ledger: Its path or URL.
        attempted: What failed, as in "cannot be opened".

    Yields:
        Nothing.

    Raises:
        UserError: What the machine said, with a remedy.
        DatabaseError: SQLite refused for another reason, which is a mistake of the code's.

    """
    try:
        yield
    except OSError as error:
        raise UserError(f"the ledger {ledger} cannot be {attempted}: {error}") from None
    except sqlite3.DatabaseError as error:
        code = (error.sqlite_errorcode or 0) & 0xFF
        if code not in _REMEDIES:
            raise
        remedy = _REMEDIES[code]
        raise UserError(f"the ledger {ledger} cannot be {attempted}: {error}; {remedy}") from None


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
        self._immutable = False
        with self._explained("opened"):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        try:
            return _prepared(str(self._path))
        except sqlite3.OperationalError as error:
            if not self._path.exists():
                raise
            # WAL needs to write beside the file. Where nobody can, nobody else writes either.
            if not os.access(self._path.parent, os.W_OK):
                self._immutable = True
                return _prepared(f"{self._path.absolute().as_uri()}?immutable=1")
            # A full disk has no room for the index of the WAL, which who is alone keeps in memory:
            # what frees the disk must be able to read.
            if (error.sqlite_errorcode or 0) & 0xFF not in _NO_ROOM:
                raise
            return _prepared(str(self._path), alone=True)

    def _explained(self, attempted: str) -> AbstractContextManager[None]:
        return explained(str(self._path), attempted)

    def query(self, sql: str, params: Params | None = None) -> list[Row]:
        """Read rows; see `Store.query`."""
        with self._lock, self._explained("read"):
            cursor = self._connection.execute(sql, dict(params or {}))
            row = row_type(tuple(each[0] for each in cursor.description or ()))
            return list(map(row._make, cursor.fetchall()))

    def column(self, sql: str, params: Params | None = None) -> list[Any]:
        """Read one column; see `Store.column`."""
        with self._lock, self._explained("read"):
            rows = self._connection.execute(sql, dict(params or {})).fetchall()
        return [row[0] for row in rows]

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None:
        """Execute a statement for each of `rows`; see `Store.execute_many`."""
        with self._lock:
            self._connection.executemany(sql, [dict(row) for row in rows])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. IMMEDIATE waits for the other writer now instead of failing later."""
        if self._immutable:
            # SQLite would say so at the first row, after hours of what is to be recorded.
            remedy = _REMEDIES[sqlite3.SQLITE_READONLY]
            raise UserError(f"the ledger {self._path} cannot be written: it is read-only; {remedy}")
        with self._lock, self._explained("written"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    def copy_to(self, path: Path) -> None:
        """Write what is committed to another file, while others may go on writing to this one."""
        with self._lock, self._explained("copied"), closing(sqlite3.connect(path)) as copy:
            self._connection.backup(copy)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _prepared(target: str, *, alone: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        target,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=target.startswith("file:"),
    )
    try:
        if alone:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("PRAGMA mmap_size=1073741824")
        write_ahead(connection, BUSY_SECONDS)
    except sqlite3.OperationalError:
        # Its lock on what it could not open would be in the way of the next attempt.
        connection.close()
        raise
    return connection
