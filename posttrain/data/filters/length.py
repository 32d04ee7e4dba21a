"""Texts that are empty, too short or too long."""

import polars as pl

from posttrain.data.filters.sieve import judge


def length(frame: pl.DataFrame, column: str, bounds: tuple[int, int]) -> pl.DataFrame:
    """Judge rows by the number of characters of `column`, white space at the ends left out.

    Reasons: "empty", "too_short", "too_long"; both bounds are allowed lengths.
    """
    least, most = bounds
    size = pl.col(column).str.strip_chars().str.len_chars()
    reason = (
        pl.when(size == 0)
        .then(pl.lit("empty"))
        .when(size < least)
        .then(pl.lit("too_short"))
        .when(size > most)
        .then(pl.lit("too_long"))
    )
    return judge(frame, reason)
