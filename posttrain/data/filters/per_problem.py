"""Solutions beyond the first few of their problem."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.data.filters.base import Filter, FilterInputs, reasons_from

if TYPE_CHECKING:
    import polars as pl


class PerProblemFilter(Filter):
    """Drops solutions beyond the first so many of their problem: `enough_traces`.

    Source: own.
    """

    kind: Literal["per_problem"] = "per_problem"
    most: int | None = Field(default=None, ge=1)
    """Solutions per problem, chosen by id; null keeps all."""

    def reasons(self, frame: "pl.DataFrame", inputs: FilterInputs) -> "pl.DataFrame":
        """Count within each problem; see `Filter.reasons`."""
        import polars as pl

        enough = pl.lit(value=False)
        if self.most is not None:
            enough = pl.int_range(pl.len()).over("problem_id") >= self.most
        return reasons_from(frame, pl.when(enough).then(pl.lit("enough_traces")))
