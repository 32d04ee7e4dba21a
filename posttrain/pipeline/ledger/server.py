"""A ledger on a database server (PostgreSQL), through SQLAlchemy."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from posttrain.errors import UserError
from posttrain.pipeline.ledger.migrate import driver_url
from posttrain.pipeline.ledger.store import Params, Row

# One writer at a time, also across machines: any constant will do as long as it is ours.
_WRITER_LOCK = 0x706F7374


class ServerStore:
    """One connection to a server; writers queue behind an advisory lock."""

    dialect = "postgresql"

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            self._engine = create_engine(driver_url(url))
            self._connection: Connection = self._engine.connect()
        except (SQLAlchemyError, ImportError, ValueError) as error:
            raise UserError(f"cannot open the ledger at {_public(url)}: {_first(error)}") from None
        self._depth = 0
        self._lock = threading.RLock()

    def query(self, sql: str, params: Params | None = None) -> list[Row]:
        """Rows of a SELECT."""
        with self._lock:
            rows = [tuple(row) for row in self._connection.execute(text(sql), dict(params or {}))]
            if not self._depth:
                self._connection.rollback()
            return rows

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None:
        """One statement for each of `rows`."""
        if rows:
            self._connection.execute(text(sql), [dict(row) for row in rows])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; the lock is released with the transaction, also when the client dies."""
        with self._lock:
            self._depth += 1
            try:
                self._connection.execute(text(f"SELECT pg_advisory_xact_lock({_WRITER_LOCK})"))
                yield
                self._connection.commit()
            finally:
                self._depth -= 1
                # Does nothing after a commit.
                self._connection.rollback()

    def close(self) -> None:
        """Give the connection back and forget the pool."""
        self._connection.close()
        self._engine.dispose()


def _public(url: str) -> str:
    """The URL without its password."""
    scheme, _, rest = url.partition("://")
    credentials, at, place = rest.rpartition("@")
    return f"{scheme}://{credentials.partition(':')[0]}{at}{place}"


def _first(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "psycopg":
        return "its driver is missing; install it with: pip install 'psycopg[binary]'"
    return str(error).splitlines()[0]
