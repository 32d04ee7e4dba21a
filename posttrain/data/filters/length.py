"""Texts that are empty, too short or too long."""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from posttrain.data.filters.base import Filter, FilterInputs, reasons_from

if TYPE_CHECKING:
    import polars as pl


class LengthFilter(Filter):
    """Drops rows whose text is `empty`, `too_short` or `too_long`, in characters.

    White space at the ends does not count; both bounds are allowed lengths.

    Source: own.
    """

    kind: Literal["length"] = "length"
    column: str
    """Column that is measured."""
    least: int = Field(default=1, ge=0)
    """Fewest characters that stay; an empty text goes in any case."""
    most: int | None = Field(default=None, ge=1)
    """Most characters that stay; null sets no limit."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.most is not None and self.least > self.most:
            raise ValueError(f"least {self.least} is more than most {self.most}; exchange them")
        return self

    @property
    def label(self) -> str:
        """`prompt_length` for the column `prompt`."""
        return f"{self.column}_length"

    def reasons(self, frame: "pl.DataFrame", inputs: FilterInputs) -> "pl.DataFrame":
        """Measure the column; see `Filter.reasons`."""
        import polars as pl

        size = pl.col(self.column).str.strip_chars().str.len_chars()
        reason = (
            pl.when(size == 0)
            .then(pl.lit("empty"))
            .when(size < self.least)
            .then(pl.lit("too_short"))
        )
        if self.most is not None:
            reason = reason.when(size > self.most).then(pl.lit("too_long"))
        return reasons_from(frame, reason)
