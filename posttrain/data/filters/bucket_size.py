"""Buckets of difficulty: their names, and how many problems one may hold."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.data.filters.base import Filter, FilterInputs, reasons_from

if TYPE_CHECKING:
    import polars as pl


class BucketSizeFilter(Filter):
    """Drops problems beyond the first so many of their difficulty bucket: `bucket_full`.

    In a table sorted by id, which rows come first is as good as random and does not change when
    others are added.

    Source: own.
    """

    kind: Literal["bucket_size"] = "bucket_size"
    most: int | None = Field(default=None, ge=1)
    """Problems per difficulty bucket; null keeps all."""

    def reasons(self, frame: "pl.DataFrame", inputs: FilterInputs) -> "pl.DataFrame":
        """Count within each bucket of `inputs.difficulty_edges`; see `Filter.reasons`."""
        import polars as pl

        full = pl.lit(value=False)
        if self.most is not None:
            full = pl.int_range(pl.len()).over(bucket(inputs.difficulty_edges)) >= self.most
        return reasons_from(frame, pl.when(full).then(pl.lit("bucket_full")))


def bucket(edges: Sequence[int]) -> "pl.Expr":
    """Name a row's difficulty bucket.

    Args:
        edges: Highest difficulty of each bucket but the last, rising. 2 and 5 give "..2", "3-5"
            and "6+"; none give every difficulty a bucket of its own.

    Returns:
        An expression over `difficulty`, called `bucket`.

    """
    import polars as pl

    level = pl.col("difficulty")
    if not edges:
        return level.cast(pl.String).alias("bucket")
    name = pl.lit(f"{edges[-1] + 1}+")
    lowest = [None, *(edge + 1 for edge in edges[:-1])]
    for low, high in reversed(list(zip(lowest, edges, strict=True))):
        label = f"..{high}" if low is None else str(high) if low == high else f"{low}-{high}"
        name = pl.when(level <= high).then(pl.lit(label)).otherwise(name)
    return name.alias("bucket")
