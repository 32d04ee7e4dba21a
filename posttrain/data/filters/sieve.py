"""Splitting a table by the judgements of a filter.

A filter is a function of a frame that returns one judgement per row, in row order: `reason`, empty
where the row stays, and `match`, the id of the row that speaks against it (empty where none does).
"""

from collections.abc import Callable, Mapping

import polars as pl

Filter = Callable[[pl.DataFrame], pl.DataFrame]

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


def sift_all(
    frame: pl.DataFrame, filters: Mapping[str, Filter]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Pass `frame` through the filters in turn; each sees what the ones before it kept.

    The dropped rows come in the order of the filters. At least one filter is needed.
    """
    losses = []
    for judge_rows in filters.values():
        frame, dropped = sift(frame, judge_rows(frame))
        losses.append(dropped)
    return frame, pl.concat(losses)
