"""Windows on tables of any length: filtered, searched and sorted here, read a few rows at a time.

Of a table what is listed stays in memory, a line for each cell; a search goes through the whole
texts in the file. What was asked last is kept, so that scrolling asks no question twice.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import polars as pl

from posttrain.cli.page.columns import ListedColumn, listed_columns, listed_from
from posttrain.provenance.lineage.tables import Table, collected
from posttrain.stage.errors import UserError, nearest

T = TypeVar("T")

_FIRST = 100
_MOST_VALUES = 12
"""Of a text or a yes or no: with so many different values or fewer it is chosen from a list."""


class RowQuestion(NamedTuple):
    """Which rows of a table are asked for, and in which order.

    `where` is an SQL expression over the table's columns, `search` a text that a row holds
    anywhere in its texts, `chosen` values by column, `sort` a listed column.
    """

    where: str = ""
    search: str = ""
    chosen: tuple[tuple[str, str], ...] = ()
    sort: str = ""
    descending: bool = False


class Memory(Generic[T]):
    """The last few results of costly questions; safe for several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is kept under a key, made where there is nothing."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made


class Later(Generic[T]):
    """A costly result that is made when it is first asked for; who asks meanwhile waits."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: list[T] = []

    @property
    def done(self) -> bool:
        """Whether it is there."""
        return bool(self._made)

    def result(self) -> T:
        """Return it, made or waited for where it is not there."""
        with self._lock:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]


@dataclass(frozen=True)
class ListedTable:
    """A table with its first rows, and what is listed of all of them once that was asked for.

    Args:
        table: The table.
        columns: What is listed.
        num_rows: How many there are in all.
        first: Cells of the first rows.
        read: Gives the cells of all rows.

    """

    table: Table
    columns: list[ListedColumn]
    num_rows: int
    first: pl.DataFrame
    read: Later[pl.DataFrame]

    @property
    def cells(self) -> pl.DataFrame:
        """The cells of all rows."""
        return self.read.result()

    def choices(self) -> dict[str, list[tuple[str, int]]]:
        """Count the values of each column that has few.

        Returns:
            By column (value, rows), the most frequent first.

        """
        found = {}
        for column in self.columns:
            if column.shape == "number" or column.name == "id":
                continue
            values = self.cells[column.name].cast(pl.String)
            if 1 < values.n_unique() <= _MOST_VALUES:
                counts = values.fill_null("").value_counts(sort=True).rows()
                found[column.name] = [(str(value), int(count)) for value, count in counts]
        return found

    def numbers(self, question: RowQuestion) -> pl.Series:
        """Find the rows that are asked for.

        Args:
            question: Which, and in which order.

        Returns:
            Their numbers, from 0.

        Raises:
            UserError: The expression is no SQL over the table, or there is no such column.

        """
        numbers = self.table.numbers(question.where or None).cast(pl.UInt32)
        for name, value in question.chosen:
            cells = self.cells[self._listed(name)].cast(pl.String).fill_null("")
            numbers = numbers.filter((cells == value).gather(numbers))
        if question.search:
            numbers = numbers.filter(self._holding(question.search).gather(numbers))
        if question.sort:
            order = self.cells[self._listed(question.sort)].gather(numbers)
            places = order.arg_sort(descending=question.descending, nulls_last=True)
            numbers = numbers.gather(places)
        return numbers

    def window(self, numbers: pl.Series, start: int, count: int) -> list[list[Any]]:
        """Read the cells of some rows.

        Args:
            numbers: Of all rows that are asked for.
            start: The first of them to read, from 0.
            count: How many at most.

        Returns:
            A list a row: its number in the table, and its cells.

        """
        wanted = numbers.slice(start, count).to_list()
        if not wanted:
            return []
        among_first = max(wanted) < self.first.height
        rows = (self.first if among_first else self.cells)[wanted].rows()
        return [[number, *row] for number, row in zip(wanted, rows, strict=True)]

    def _listed(self, name: str) -> str:
        if name not in self.first.columns:
            raise UserError(
                f"{self.table.path} lists no column '{name}'{nearest(name, self.first.columns)}"
            )
        return name

    def _holding(self, search: str) -> pl.Series:
        """Per row: do its texts hold these words?"""
        schema = pl.read_parquet_schema(self.table.file)
        texts = [name for name, dtype in schema.items() if dtype == pl.String]
        if not texts:
            return pl.repeat(False, self.num_rows, dtype=pl.Boolean, eager=True)
        wanted = search.lower()
        holds = [
            pl.col(name).str.to_lowercase().str.contains(wanted, literal=True).fill_null(False)
            for name in texts
        ]
        found = pl.scan_parquet(self.table.file).select(pl.any_horizontal(holds).alias("found"))
        return collected(found, self.table)["found"]


def list_table(table: Table, kind: str) -> ListedTable:
    """Read the first rows of a table.

    Args:
        table: The table.
        kind: Of the artifact.

    Returns:
        It, ready to be shown from its beginning; all its rows are read when they are asked for.

    """
    rows = table.rows()
    schema = rows.collect_schema()
    head = collected(rows.select(listed_from(kind, schema)).head(_FIRST), table)
    columns = listed_columns(kind, schema, head)
    count = int(collected(rows.select(pl.len()), table).item())
    first = _cells(head.lazy(), columns, table)
    return ListedTable(table, columns, count, first, Later(lambda: _cells(rows, columns, table)))


def _cells(rows: pl.LazyFrame, columns: list[ListedColumn], table: Table) -> pl.DataFrame:
    found = collected(rows.select(each.value.alias(each.name) for each in columns), table)
    # JSON knows no number that is none.
    return found.with_columns(pl.selectors.float().fill_nan(None))
