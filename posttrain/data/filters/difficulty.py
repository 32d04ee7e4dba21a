"""Difficulty: the allowed range, buckets with names, and how many problems a bucket may hold."""

from collections.abc import Sequence

import polars as pl

from posttrain.data.filters.sieve import judge


def difficulty_range(frame: pl.DataFrame, bounds: tuple[int, int]) -> pl.DataFrame:
    """Judge rows outside `bounds`, both included: "too_easy", "too_hard"."""
    least, most = bounds
    level = pl.col("difficulty")
    reason = (
        pl.when(level < least).then(pl.lit("too_easy")).when(level > most).then(pl.lit("too_hard"))
    )
    return judge(frame, reason)


def bucket(edges: Sequence[int]) -> pl.Expr:
    """Name of a row's difficulty bucket; each edge is the highest difficulty of its bucket.

    Edges 2 and 5 give "..2", "3-5" and "6+"; no edges give every difficulty a bucket of its own.
    """
    level = pl.col("difficulty")
    if not edges:
        return level.cast(pl.String).alias("bucket")
    name = pl.lit(f"{edges[-1] + 1}+")
    lowest = [None, *(edge + 1 for edge in edges[:-1])]
    for low, high in reversed(list(zip(lowest, edges, strict=True))):
        label = f"..{high}" if low is None else str(high) if low == high else f"{low}-{high}"
        name = pl.when(level <= high).then(pl.lit(label)).otherwise(name)
    return name.alias("bucket")


def bucket_size(frame: pl.DataFrame, edges: Sequence[int], most: int) -> pl.DataFrame:
    """Judge rows beyond the first `most` of their bucket: "bucket_full".

    In a table sorted by id, which rows come first is as good as random and does not change when
    others are added.
    """
    place = pl.int_range(pl.len()).over(bucket(edges))
    return judge(frame, pl.when(place >= most).then(pl.lit("bucket_full")))
