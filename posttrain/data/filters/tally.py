"""How many rows stayed and how many went, and why: in all and per group."""

from typing import Any

import polars as pl

Count = dict[str, Any]


def tally(kept: pl.DataFrame, dropped: pl.DataFrame) -> Count:
    """Rows read, kept and dropped per reason, the most frequent reason first."""
    reasons = dropped.group_by("reason").len().sort("len", "reason", descending=[True, False])
    return {
        "read": len(kept) + len(dropped),
        "kept": len(kept),
        "dropped": dict(reasons.iter_rows()),
    }


def tally_by(kept: pl.DataFrame, dropped: pl.DataFrame, name: str, group: pl.Expr) -> list[Count]:
    """A `tally` for each value of `group`, called `name`; groups of low difficulty come first."""
    key = group.cast(pl.String).alias(name)
    rows = pl.concat([frame.select(key, "difficulty") for frame in (kept, dropped)])
    groups = rows.group_by(name).agg(pl.col("difficulty").min()).sort("difficulty", name)
    return [
        {name: value} | tally(kept.filter(key == value), dropped.filter(key == value))
        for value in groups[name]
    ]
