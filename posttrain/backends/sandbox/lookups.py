"""Answer queries, each on tables of its own that it can only read: this file runs in a sandbox.

Equal tables and queries give equal answers: no clock, no chance, and a limit in steps of the
database's machine.
"""

import json
import sqlite3
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ}
_FUNCTIONS = frozenset(
    {"abs", "avg", "coalesce", "count", "glob", "group_concat", "ifnull", "instr", "length"}
    | {"like", "lower", "max", "min", "nullif", "round", "substr", "sum", "total", "trim", "upper"}
)
_MOST_STEPS, _MOST_BYTES = 2_000_000, 1_000_000
_HEAP_BYTES = 64 << 20


def looked_up(
    tables: Sequence[Mapping[str, Any]], query: str, most_rows: int
) -> tuple[list[list[Any]], str]:
    """Make the tables, run the query, and read its first rows.

    Args:
        tables: Each with `name`, `columns` and `rows`.
        query: One statement, which may only read.
        most_rows: Rows that are read.

    Returns:
        The rows; and in words what is wrong with the query, empty where nothing is.

    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as link:
        for table in tables:
            name, columns = _quoted(table["name"]), [_quoted(each) for each in table["columns"]]
            marks = ", ".join("?" for _ in columns)
            link.execute(f"create table {name} ({', '.join(columns)})")
            link.executemany(f"insert into {name} values ({marks})", table["rows"])
        link.set_authorizer(_allows)
        link.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
        link.set_progress_handler(lambda: 1, _MOST_STEPS)
        try:
            found = link.execute(query).fetchmany(most_rows)
            return [[_plain(each) for each in row] for row in found], ""
        except (sqlite3.Error, sqlite3.Warning, ValueError, MemoryError) as error:
            return [], str(error) or type(error).__name__


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _allows(action: int, _: str | None, name: str | None, *rest: str | None) -> int:  # noqa: ARG001
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_OK if name in _FUNCTIONS else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def main() -> None:
    """Answer all that is asked on the standard input."""
    with closing(sqlite3.connect(":memory:")) as link:
        # It holds for all of this process.
        link.execute(f"pragma hard_heap_limit = {_HEAP_BYTES}")
    asked = json.load(sys.stdin)
    json.dump([looked_up(**each) for each in asked], sys.stdout)


if __name__ == "__main__":
    main()
