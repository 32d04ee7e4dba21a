"""How SQL reaches a database: SQLite by the standard library, anything else by SQLAlchemy."""

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from posttrain.errors import UserError

Row = tuple[Any, ...]
Params = Mapping[str, object]

_BUSY_SECONDS = 60.0
_CHUNK = 500


class Store(Protocol):
    """One database. SQL names its parameters `:like_this`; writes happen inside `transaction`."""

    url: str

    def query(self, sql: str, params: Params | None = None) -> list[Row]:
        """Rows of a SELECT."""

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None:
        """One statement for each of `rows`."""

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing; one writer at a time."""

    def close(self) -> None:
        """Give the connection back."""


def query_in(store: Store, sql: str, values: Sequence[object]) -> list[Row]:
    """Run `sql`, whose `{values}` stands for the list of an IN, for any number of values."""
    rows: list[Row] = []
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        params = {f"v{index}": value for index, value in enumerate(chunk)}
        names = ",".join(f":{name}" for name in params)
        rows += store.query(sql.replace("{values}", names), params)
    return rows


def open_store(url: str) -> Store:
    """Connect to a path, a `sqlite:///` URL, or any other URL that SQLAlchemy knows."""
    if "://" not in url or url.startswith("sqlite:"):
        return SqliteStore(Path(url.removeprefix("sqlite:///")))
    from posttrain.pipeline.ledger.server import ServerStore

    return ServerStore(url)


class SqliteStore:
    """A SQLite file in WAL mode, so that readers never wait for the writer.

    `synchronous=NORMAL`: a killed process loses nothing; a power cut may lose the last
    transactions, never tear one, and the price of a lost record is running that stage again.
    """

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._prepare()
        except (sqlite3.Error, OSError) as error:
            raise UserError(
                f"cannot open the ledger {path}: {error}; check the path and its rights"
            ) from None

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute("PRAGMA temp_store=MEMORY")
        self._connection.execute("PRAGMA mmap_size=1073741824")
        if self._connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            self._switch_to_wal()

    def _switch_to_wal(self) -> None:
        """SQLite does not wait here for its busy timeout, so the first openers take turns."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def query(self, sql: str, params: Params | None = None) -> list[Row]:
        """Rows of a SELECT."""
        with self._lock:
            return self._connection.execute(sql, dict(params or {})).fetchall()

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None:
        """One statement for each of `rows`."""
        with self._lock:
            self._connection.executemany(sql, [dict(row) for row in rows])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing. IMMEDIATE waits for the other writer now instead of failing later."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
