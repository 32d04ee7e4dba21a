"""Two versions of a table, row by row."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from posttrain.provenance.lineage.tables import Table, collected
from posttrain.stage.errors import UserError

_NUMBER = "\0row"
_OLD = "\0old"


@dataclass(frozen=True)
class ChangedRow:
    """A row of both versions with other values."""

    id: str
    before: int
    """Its number in the earlier version."""
    after: int
    values: Sequence[tuple[str, Any, Any]]
    """Column, value before, value after."""


@dataclass(frozen=True)
class TableDifference:
    """What became of a table's rows from one version to the next; of some rows the first."""

    num_before: int
    num_after: int
    num_same: int
    num_added: int
    num_removed: int
    num_changed: int
    columns: Sequence[tuple[str, int]]
    """Columns that changed, with the rows in which they did, and columns that only one has, 0."""
    added: Sequence[dict[str, Any]]
    removed: Sequence[dict[str, Any]]
    changed: Sequence[ChangedRow]


def differing_rows(before: Table, after: Table, *, most: int) -> TableDifference:
    """Compare two tables by the ids of their rows.

    Args:
        before: The earlier version.
        after: The later one.
        most: How many rows of each sort to read.

    Returns:
        Counts of all, and the first rows. Rows that share an id, as equal answers to one problem
        do, are the same content, and the first stands for them.

    Raises:
        UserError: A table has no column of ids.

    """
    frames = [_read(each) for each in (before, after)]
    old, new = (each.unique("id", keep="first", maintain_order=True) for each in frames)
    added = new.join(old, on="id", how="anti", maintain_order="left")
    removed = old.join(new, on="id", how="anti", maintain_order="left")
    both = new.join(old, on="id", how="inner", suffix=_OLD, maintain_order="left")
    shared = [name for name in new.columns if name in old.columns and name not in ("id", _NUMBER)]
    comparable = [name for name in shared if new.schema[name] == old.schema[name]]
    unlike = both.select(
        pl.col(name).ne_missing(pl.col(f"{name}{_OLD}")).alias(name) for name in comparable
    )
    counts = [(name, int(unlike[name].sum())) for name in comparable]
    other = sorted({*new.columns, *old.columns} - {*comparable, "id", _NUMBER})
    mask = unlike.select(pl.any_horizontal(pl.all())).to_series() if comparable else None
    changed = both.filter(mask) if mask is not None else both.head(0)
    marks = unlike.filter(mask) if mask is not None else unlike
    return TableDifference(
        num_before=frames[0].height,
        num_after=frames[1].height,
        num_same=both.height - changed.height,
        num_added=added.height,
        num_removed=removed.height,
        num_changed=changed.height,
        columns=[*((name, count) for name, count in counts if count), *((n, 0) for n in other)],
        added=_numbered(added.head(most)),
        removed=_numbered(removed.head(most)),
        changed=list(map(_changed, changed.head(most).to_dicts(), marks.head(most).to_dicts())),
    )


def _read(table: Table) -> pl.DataFrame:
    if "id" not in pl.read_parquet_schema(table.file):
        raise UserError(f"{table.path} has no ids, so its versions cannot be compared by row")
    return collected(pl.scan_parquet(table.file, row_index_name=_NUMBER), table)


def _numbered(rows: pl.DataFrame) -> list[dict[str, Any]]:
    return [{"number": row.pop(_NUMBER), "row": row} for row in rows.to_dicts()]


def _changed(row: dict[str, Any], marks: dict[str, bool]) -> ChangedRow:
    values = [(name, row[f"{name}{_OLD}"], row[name]) for name, unlike in marks.items() if unlike]
    return ChangedRow(row["id"], row[f"{_NUMBER}{_OLD}"], row[_NUMBER], values)
