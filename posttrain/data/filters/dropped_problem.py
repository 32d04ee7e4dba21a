"""Solutions of problems that do not stay."""

from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.data.filters.base import Filter, FilterInputs, reasons_from

if TYPE_CHECKING:
    import polars as pl


class DroppedProblemFilter(Filter):
    """Drops solutions whose problem went: `problem_` and its reason, or `unknown_problem`.

    Of a problem that was there several times, the copy that came furthest counts.

    Source: own.
    """

    NEEDS: ClassVar[frozenset[str]] = frozenset({"problems"})

    kind: Literal["dropped_problem"] = "dropped_problem"

    def reasons(self, frame: "pl.DataFrame", inputs: FilterInputs) -> "pl.DataFrame":
        """Look the problems up in `inputs.problems` and `inputs.dropped`; see `Filter.reasons`."""
        import polars as pl

        assert inputs.problems is not None
        assert inputs.dropped is not None
        fates = pl.concat(
            [
                inputs.dropped.select("id", ("problem_" + pl.col("reason")).alias("fate")),
                inputs.problems.select("id", pl.lit("").alias("fate")),
            ]
        ).unique("id", keep="last", maintain_order=True)
        found = frame.join(
            fates, left_on="problem_id", right_on="id", how="left", maintain_order="left"
        )
        return reasons_from(found, pl.col("fate").fill_null("unknown_problem"))
