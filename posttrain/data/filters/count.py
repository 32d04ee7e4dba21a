"""How many rows stayed and how many went, and why: in all and per group."""

from typing import Any

import polars as pl

Count = dict[str, Any]


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
