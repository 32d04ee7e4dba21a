"""Rows that a person looked at and did not want."""

from typing import TYPE_CHECKING, Literal

from posttrain.data.filters.base import KEEP, Filter, FilterInputs
from posttrain.stage.declared import read_path

if TYPE_CHECKING:
    import polars as pl


class ReviewedFilter(Filter):
    """Drops what a reviewer rejected: `rejected`; where asked, what nobody looked at: `unreviewed`.

    One reviewer who rejects a row is enough. `match` is the review, which has the reason in the
    reviewer's words. `posttrain ui` writes reviews.

    Source: own.
    """

    kind: Literal["reviewed"] = "reviewed"
    path: str
    """Table of reviews, from the recipe's folder on, such as `reviews/synthesize.parquet`."""
    unreviewed: Literal["keep", "drop"] = "keep"
    """What becomes of rows that nobody looked at."""

    def read_files(self) -> tuple[str, ...]:
        """Name the reviews; see `StageConfig.read_files`."""
        return (self.path,)

    def reasons(self, frame: "pl.DataFrame", inputs: FilterInputs) -> "pl.DataFrame":  # noqa: ARG002
        """Look the rows up by their ids; see `Filter.reasons`."""
        import polars as pl

        from posttrain.data.reviews import read_reviews

        # A rejection goes before an acceptance, whoever came first.
        said = read_reviews(read_path(self.path)).sort("verdict", descending=True)
        said = said.unique("subject", keep="first", maintain_order=True)
        said = said.select("subject", "verdict", match="id")
        found = frame.select("id").join(
            said, left_on="id", right_on="subject", how="left", maintain_order="left"
        )
        rejected = pl.col("verdict") == "reject"
        unseen = pl.lit("unreviewed" if self.unreviewed == "drop" else KEEP)
        reason = pl.when(rejected).then(pl.lit("rejected")).when(pl.col("verdict").is_null())
        match = pl.when(rejected).then(pl.col("match")).otherwise(pl.lit(""))
        return found.select(
            reason.then(unseen).otherwise(pl.lit(KEEP)).alias("reason"), match.alias("match")
        )
