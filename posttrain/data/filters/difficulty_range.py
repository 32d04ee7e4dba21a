"""Rows outside of a range of difficulties."""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import model_validator

from posttrain.data.filters.base import Filter, FilterInputs, reasons_from

if TYPE_CHECKING:
    import polars as pl


class DifficultyRangeFilter(Filter):
    """Drops rows that are `too_easy` or `too_hard`; both bounds stay.

    Source: own.
    """

    kind: Literal["difficulty_range"] = "difficulty_range"
    least: int | None = None
    """Least difficulty that stays; null sets no limit."""
    most: int | None = None
    """Greatest difficulty that stays; null sets no limit."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.least is not None and self.most is not None and self.least > self.most:
            raise ValueError(f"least {self.least} is more than most {self.most}; exchange them")
        return self

    def reasons(self, frame: "pl.DataFrame", inputs: FilterInputs) -> "pl.DataFrame":
        """Compare with the bounds; see `Filter.reasons`."""
        import polars as pl

        level, never = pl.col("difficulty"), pl.lit(value=False)
        easy = never if self.least is None else level < self.least
        hard = never if self.most is None else level > self.most
        reason = pl.when(easy).then(pl.lit("too_easy")).when(hard).then(pl.lit("too_hard"))
        return reasons_from(frame, reason)
