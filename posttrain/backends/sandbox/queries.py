"""Run two queries on one database and compare their rows: this file runs in a sandbox."""

import json
import re
import sqlite3
import sys
from collections import Counter
from typing import Any

_ALLOWED = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}
_MOST_ROWS = 100_000
_DIGITS = 9


def _rows_of(database: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query; numbers that differ by rounding alone become equal.

    Raises:
        sqlite3.Error: It fails, changes something, or is more than one statement.

    """
    found = database.execute(query).fetchmany(_MOST_ROWS)
    return [tuple(_plain(each) for each in row) for row in found]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    return value.hex() if isinstance(value, bytes) else value


def is_ordered(query: str) -> bool:
    """Return whether a query itself has an `order by`, and not only a part in brackets."""
    text = re.sub(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", " ", query, flags=re.S)
    while (less := re.sub(r"\([^()]*\)", " ", text)) != text:
        text = less
    return re.search(r"\border\s+by\b", text, re.IGNORECASE) is not None


def compare_queries(told: dict[str, Any]) -> dict[str, Any]:
    """Make the database, run both queries, and say what came of it.

    Args:
        told: `database`, `reference`, `query`, `ordered`.

    Returns:
        `same`; or `reference` or `query` with the error of either.

    """
    database = sqlite3.connect(":memory:")
    try:
        database.executescript(told["database"])
        # From here on nothing can be changed, attached or set.
        database.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
        )
        wanted = _rows_of(database, told["reference"])
    except (sqlite3.Error, sqlite3.Warning) as error:
        return {"reference": str(error)}
    try:
        found = _rows_of(database, told["query"])
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        return {"query": str(error)}
    ordered = told["ordered"]
    if ordered if ordered is not None else is_ordered(told["reference"]):
        return {"same": found == wanted}
    return {"same": Counter(found) == Counter(wanted)}


if __name__ == "__main__":
    json.dump(compare_queries(json.load(sys.stdin)), sys.stdout)
