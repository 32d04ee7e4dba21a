"""How SQL reaches a database: what a store of either kind offers, and rows with names."""

from collections import namedtuple
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Protocol

Row = Any
"""A named tuple: the value of column `stage` is `row.stage`."""
Params = Mapping[str, object]

_CHUNK = 500


class Store(Protocol):
    """One database. SQL names its parameters `:like_this`; writes happen inside `transaction`."""

    url: str
    dialect: str
    """`sqlite` or `postgresql`: where the two differ, `dialects` has a text for each."""

    def query(self, sql: str, params: Params | None = None) -> list[Row]:
        """Rows of a SELECT, with the names of its columns."""

    def column(self, sql: str, params: Params | None = None) -> list[Any]:
        """The first column of a SELECT: for long results, at half the price of rows."""

    def execute_many(self, sql: str, rows: Sequence[Params]) -> None:
        """One statement for each of `rows`."""

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
