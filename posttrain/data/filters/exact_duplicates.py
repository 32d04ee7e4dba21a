"""Duplicates but for white space: the first row of each group of equal ones stays."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.data.filters.base import KEEP, Filter, FilterInputs

if TYPE_CHECKING:
    import polars as pl


class ExactDuplicatesFilter(Filter):
    """Drops rows whose columns equal an earlier row's but for white space: `exact_duplicate`.

    Where the table has an `answer` and the two rows' differ, the reason is `conflicting_answer`.
    `match` is the earlier row. Sort the table by id first, and which row stays does not depend on
    the order of the input.

    Source: own.
    """

    kind: Literal["exact_duplicates"] = "exact_duplicates"
    columns: tuple[str, ...] = Field(default=("prompt",), min_length=1)
    """Columns that must all be equal."""

    def reasons(self, frame: "pl.DataFrame", inputs: FilterInputs) -> "pl.DataFrame":
        """Compare with earlier rows; see `Filter.reasons`."""
        import polars as pl

        keys = [
            pl.col(name).str.replace_all(r"\s+", " ").str.strip_chars() for name in self.columns
        ]
        answer = pl.col("answer") if "answer" in frame.columns else pl.lit("")
        rows = frame.select("id", answer.alias("answer"), pl.struct(keys).alias("key"))
        rows = rows.with_row_index()
        earlier = pl.struct("index", "id", "answer").first().over("key").struct
        first = rows.select(
            pl.col("index") == earlier.field("index"),
            earlier.field("id").alias("match"),
            (pl.col("answer") == earlier.field("answer")).alias("same_answer"),
        )
        reason = (
            pl.when("index")
            .then(pl.lit(KEEP))
            .when("same_answer")
            .then(pl.lit("exact_duplicate"))
            .otherwise(pl.lit("conflicting_answer"))
        )
        match = pl.when("index").then(pl.lit("")).otherwise("match")
        return first.select(reason.alias("reason"), match.alias("match"))
