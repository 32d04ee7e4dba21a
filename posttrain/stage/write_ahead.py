"""SQLite's write-ahead log, switched on by processes that open one file at the same instant."""

import sqlite3
import time

BUSY_SECONDS = 60.0
"""How long a database that another process holds is waited for."""

_POLL_SECONDS = 0.02


def write_ahead(connection: sqlite3.Connection, seconds: float = BUSY_SECONDS) -> None:
    """Let readers and a writer of a file work side by side (`journal_mode=WAL`).

    SQLite does not wait here for its busy timeout, so the first openers take turns.

    Args:
        connection: The connection to a file, outside of any transaction.
        seconds: How long to wait for who holds the file.

    Raises:
        sqlite3.OperationalError: The file is no database, cannot be written, or another process
            held it for longer.

    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)
