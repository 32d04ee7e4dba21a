"""What becomes of a table: split by the reasons that filters give, counted by them, ordered."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import polars as pl

from posttrain.data.filters.base import KEEP, Filter, FilterInputs, reasons_from
from posttrain.stage.errors import UserError
from posttrain.stage.slots import name_of

Count = dict[str, Any]

RowOrder = Literal["easy_to_hard", "easy_to_hard_then_short", "mixed"]


def split_by_reason(
    frame: pl.DataFrame, reasons: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split `frame` into the rows to keep, as they were, and the rows to drop, with the reason.

    Args:
        frame: The rows.
        reasons: `reason` and `match` per row, as `Filter.reasons` gives them.

    Returns:
        The kept rows; and the dropped ones with the columns of `frame` and of `reasons`. A
        `reason` that the frame had already (a verifier's) gives way.

    Raises:
        ValueError: There is not one reason per row.

    """
    if len(reasons) != len(frame):
        raise ValueError(f"{len(reasons)} reasons for {len(frame)} rows")
    keep = reasons["reason"] == KEEP
    dropped = frame.filter(~keep).with_columns(reasons.filter(~keep))
    return frame.filter(keep), dropped


def apply_filters(
    frame: pl.DataFrame, filters: Iterable[Filter], inputs: FilterInputs
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Pass `frame` through the filters in turn; each sees what the ones before it kept.

    Args:
        frame: The rows.
        filters: Filters, in order.
        inputs: The tables that they may compare with.

    Returns:
        The kept rows, and the dropped ones in the order of the filters.

    Raises:
        UserError: A filter gives something else than a reason and a match for each row.

    """
    # Without any filter there is an empty table of dropped rows, with all columns.
    dropped = [split_by_reason(frame, reasons_from(frame, pl.lit(KEEP)))[1]]
    for each in filters:
        reasons = each.reasons(frame, inputs)
        if complaint := _complaint(reasons, len(frame)):
            raise UserError(
                f"curate: {name_of(each)}: `reasons` gave {complaint}; let it give a table of"
                f" strings, `reason` and `match`, with a row for each of the {len(frame)} rows"
            )
        frame, losses = split_by_reason(frame, reasons)
        dropped.append(losses)
    return frame, pl.concat(dropped)


def _complaint(reasons: object, num_rows: int) -> str | None:
    """Say what a filter gave, where that is no table of reasons for so many rows."""
    if not isinstance(reasons, pl.DataFrame):
        return f"{reasons!r:.60}"
    if set(reasons.columns) != {"reason", "match"}:
        return f"the columns {', '.join(reasons.columns) or 'of an empty table'}"
    if wrong := [name for name in reasons.columns if reasons.schema[name] != pl.String]:
        return f"{wrong[0]} as {reasons.schema[wrong[0]]}"
    if empty := [name for name in reasons.columns if reasons[name].null_count()]:
        return f"null as {empty[0]}"
    return None if len(reasons) == num_rows else f"{len(reasons)} rows"


def count_reasons(kept: pl.DataFrame, dropped: pl.DataFrame) -> Count:
    """Count rows read, kept and dropped per reason, the most frequent reason first."""
    reasons = dropped.group_by("reason").len().sort("len", "reason", descending=[True, False])
    return {
        "read": len(kept) + len(dropped),
        "kept": len(kept),
        "dropped": dict(reasons.iter_rows()),
    }


def count_reasons_by(
    kept: pl.DataFrame, dropped: pl.DataFrame, name: str, group: pl.Expr
) -> list[Count]:
    """Count as `count_reasons` does, for each value of an expression.

    Args:
        kept: Rows that stay, with `difficulty`.
        dropped: Rows that go, with `difficulty` and `reason`.
        name: What the expression's value is called in each count.
        group: The expression, over both tables.

    Returns:
        A count per value; groups of low difficulty come first.

    """
    key = group.cast(pl.String).alias(name)
    rows = pl.concat([frame.select(key, "difficulty") for frame in (kept, dropped)])
    groups = rows.group_by(name).agg(pl.col("difficulty").min()).sort("difficulty", name)
    return [
        {name: value} | count_reasons(kept.filter(key == value), dropped.filter(key == value))
        for value in groups[name]
    ]


def easy_to_hard(frame: pl.DataFrame) -> pl.DataFrame:
    """By difficulty; among equals by id, which mixes the sources."""
    return frame.sort("difficulty", "id")


def easy_to_hard_then_short(frame: pl.DataFrame) -> pl.DataFrame:
    """By difficulty, among equals the shortest first: for data that come without difficulties."""
    text = "text" if "text" in frame.columns else "prompt"
    return frame.sort("difficulty", pl.col(text).str.len_chars(), "id")


def mixed(frame: pl.DataFrame) -> pl.DataFrame:
    """By id, as good as random and the same on every machine."""
    return frame.sort("id")


ORDERS: dict[RowOrder, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "easy_to_hard": easy_to_hard,
    "easy_to_hard_then_short": easy_to_hard_then_short,
    "mixed": mixed,
}
