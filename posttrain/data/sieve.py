"""Splitting a table by the judgements of a filter.

A filter is a function of a frame that returns one judgement per row, in row order: `reason`, empty
where the row stays, and `match`, the id of the row that speaks against it (empty where none does).
"""

import polars as pl

KEEP = ""


def judge(frame: pl.DataFrame, reason: pl.Expr) -> pl.DataFrame:
    """Judgements from an expression over the frame that gives the reason, or null to keep."""
    return frame.select(
        reason.cast(pl.String).fill_null(KEEP).alias("reason"), pl.lit("").alias("match")
    )


def sift(frame: pl.DataFrame, judgements: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split `frame` into the rows to keep, as they were, and the rows to drop, with the reason.

    The dropped rows have the columns of `frame` and of the judgements; a `reason` that the frame
    had already (a verdict's) gives way.
    """
    if len(judgements) != len(frame):
        raise ValueError(f"{len(judgements)} judgements for {len(frame)} rows")
    keep = judgements["reason"] == KEEP
    dropped = frame.filter(~keep).with_columns(judgements.filter(~keep))
    return frame.filter(keep), dropped
