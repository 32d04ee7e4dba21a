"""Solutions that no verifier accepted."""

from typing import TYPE_CHECKING, Literal

from posttrain.data.filters.base import Filter, FilterInputs, reasons_from

if TYPE_CHECKING:
    import polars as pl


class VerifiedFilter(Filter):
    """Drops solutions that no verifier accepted, judged or not, by its reason, or as unverified.

    Source: STaR, arXiv 2203.14465, keeps solutions whose answer is right; the reasons are own.
    """

    kind: Literal["verified"] = "verified"

    def reasons(self, frame: "pl.DataFrame", inputs: FilterInputs) -> "pl.DataFrame":
        """Read `verified` and the verifier's `reason`; see `Filter.reasons`."""
        import polars as pl

        stated = ~pl.col("reason").is_in(["", "correct"])
        reason = pl.when(stated).then(pl.col("reason")).otherwise(pl.lit("unverified"))
        accepted = pl.col("verified").fill_null(value=False)
        return reasons_from(frame, pl.when(~accepted).then(reason))
