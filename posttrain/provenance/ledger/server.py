"""A ledger on a database server (PostgreSQL), through SQLAlchemy."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, CursorResult, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from posttrain.provenance.ledger.dialects import WRITER_LOCK
from posttrain.provenance.ledger.migrate import driver_url
from posttrain.provenance.ledger.store import Params, Row, row_type
from posttrain.stage.errors import UserError, first_line, masked

WAIT_SECONDS = 120.0
_POLL_SECONDS = 0.5


class ServerStore:
    """One connection to a server; writers queue behind an advisory lock."""

    dialect = "postgresql"

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._engine = patient(create_engine(driver_url(url)))
            self._connection: Connection = self._engine.connect()
        except (SQLAlchemyError, ImportError, ValueError) as error:
            # The driver would quote what it takes for the host.
            says = "write an @ in its password as %40" if url.count("@") > 1 else _first(error)
            raise UserError(masked(f"cannot open the ledger at {url}: {says}")) from None
        self._depth = 0
        self._lock = threading.RLock()

    def query(self, sql: str, params: Params | None = None) -> list[Row]:
        """Read rows; see `Store.query`."""
        with self._lock:
            result = self._begun(sql, params)
            row = row_type(tuple(result.keys()))
            rows = [row._make(each) for each in result]
            # A read has begun a transaction; left open, it would hold its locks.
            if not self._depth:
                self._connection.rollback()
            return rows

    def column(self, sql: str, params: Params | None = None) -> list[Any]:
        """Read one column; see `Store.column`."""
        return [row[0] for row in self.query(sql, params)]

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None:
        """Execute a statement for each of `rows`; see `Store.execute_many`."""
        if rows:
            self._connection.execute(text(sql), [dict(row) for row in rows])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; the lock is released with the transaction, also when the client dies."""
        with self._lock:
            self._depth += 1
            try:
                self._begun(WRITER_LOCK[self.dialect], outer=self._depth > 1)
                yield
                self._connection.commit()
            finally:
                self._depth -= 1
                # Does nothing after a commit.
                self._connection.rollback()

    def _begun(
        self, sql: str, params: Params | None = None, *, outer: bool | None = None
    ) -> CursorResult[Any]:
        """A statement; as the first one since the connection was cut, on a new connection."""
        inside = bool(self._depth) if outer is None else outer
        try:
            return self._connection.execute(text(sql), dict(params or {}))
        except DBAPIError as error:
            if inside or not error.connection_invalidated:
                raise
        self._connection.rollback()
        return self._connection.execute(text(sql), dict(params or {}))

    def close(self) -> None:
        """Give the connection back and forget the pool."""
        self._connection.close()
        self._engine.dispose()


def patient(engine: Engine) -> Engine:
    """`engine`, whose connections are tried again for two minutes once one has been made."""
    connected = False

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, _record: Any, arguments: Any, keywords: Any) -> Any:
        nonlocal connected
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                made = dialect.connect(*arguments, **keywords)
            except dialect.loaded_dbapi.OperationalError:
                if not connected or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)
            else:
                connected = True
                return made

    return engine


def _first(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "psycopg":
        return "its driver is missing; install it with: pip install 'psycopg[binary]'"
    return first_line(error)
