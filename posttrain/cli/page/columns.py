"""Which columns of a table are listed, and how each cell is shortened to a line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

CellShape = Literal["number", "text", "yes_no"]

_LONGEST = 160
_MOST_COMPONENTS = 8
_OF_ONE_ROW = frozenset(
    {"token_ids", "spans", "versions", "turns", "facts", "token_rewards", "entropies"}
)
_LAST = ("parents", "metadata", "context", "origin_file", "origin_line")


@dataclass(frozen=True)
class ListedColumn:
    """One column of a list of rows; `value` computes it from the table's own columns."""

    name: str
    shape: CellShape
    value: pl.Expr

    @property
    def heading(self) -> str:
        """Its name as people write it."""
        return self.name.replace("_", " ")


def listed_from(kind: str, schema: Mapping[str, pl.DataType]) -> list[str]:
    """Name the columns of a table that its list is computed from.

    Args:
        kind: Of the artifact, such as ``rollouts``.
        schema: Type of every column.

    Returns:
        All but those that are long and seen on the page of a row alone.

    """
    return [name for name in schema if kind != "rollouts" or name not in _OF_ONE_ROW]


def listed_columns(
    kind: str, schema: Mapping[str, pl.DataType], head: pl.DataFrame
) -> list[ListedColumn]:
    """Choose what is listed of a table.

    Args:
        kind: Of the artifact, such as ``rollouts``.
        schema: Type of every column.
        head: Its first rows of the columns that `listed_from` names, which say what lists hold.

    Returns:
        Columns in the order in which they are read: of rollouts what was drawn and paid, of any
        other table its own, ids last.

    """
    if kind == "rollouts" and {"logprobs", "advantages", "components"} <= schema.keys():
        return _of_rollouts(head)
    names = [name for name in head.columns if name not in ("id", *_LAST)]
    names += [name for name in (*_LAST, "id") if name in head.columns]
    return [_plain(name, schema[name]) for name in names]


def _of_rollouts(head: pl.DataFrame) -> list[ListedColumn]:
    """What was drawn, what it was paid and what is learned from it."""
    paid = head["components"].explode().drop_nulls()
    names = (
        [] if paid.is_empty() else paid.struct.field("name").unique(maintain_order=True).to_list()
    )
    drawn = pl.col("logprobs")
    columns = [
        ListedColumn("step", "number", pl.col("step")),
        ListedColumn("group", "number", pl.col("group")),
        ListedColumn("source", "text", pl.col("source")),
        ListedColumn("reward", "number", pl.col("reward")),
        ListedColumn("solved", "yes_no", pl.col("solved")),
        *(ListedColumn(name, "number", component(name)) for name in names[:_MOST_COMPONENTS]),
        ListedColumn("tokens", "number", drawn.list.len().cast(pl.Int64)),
        ListedColumn("mean_logprob", "number", drawn.list.mean()),
        ListedColumn("advantage", "number", pl.col("advantages").list.mean()),
        ListedColumn("text", "text", _line(pl.col("text"))),
    ]
    rare = {"role": "policy", "origin": "policy", "end": "over"}
    columns += [
        ListedColumn(name, "text", pl.col(name))
        for name, usual in rare.items()
        if not (head[name] == usual).all() or name == "end"
    ]
    columns += [ListedColumn("trained", "yes_no", pl.col("trained"))]
    return [*columns, *(ListedColumn(name, "text", pl.col(name)) for name in ("problem_id", "id"))]


def component(name: str) -> pl.Expr:
    """Read a component of a reward.

    Args:
        name: As the recipe calls it.

    Returns:
        An expression over a table of rollouts: its value, null where it could not be judged.

    """
    one = pl.element().filter(pl.element().struct.field("name") == name)
    return pl.col("components").list.eval(one.struct.field("value")).list.first()


def _plain(name: str, dtype: pl.DataType) -> ListedColumn:
    column = pl.col(name)
    if dtype == pl.Boolean:
        return ListedColumn(name, "yes_no", column)
    if dtype.is_numeric():
        return ListedColumn(name, "number", column)
    if dtype == pl.String:
        return ListedColumn(name, "text", _line(column))
    if isinstance(dtype, pl.List):
        if dtype.inner == pl.String:
            return ListedColumn(name, "text", _line(column.list.join(", ")))
        return ListedColumn(name, "number", column.list.len().cast(pl.Int64))
    return ListedColumn(name, "text", _line(column.cast(pl.String, strict=False)))


def _line(text: pl.Expr) -> pl.Expr:
    """The beginning of a text as one line."""
    return text.str.slice(0, _LONGEST).str.replace_all(r"\s*\n\s*", " ⏎ ")
