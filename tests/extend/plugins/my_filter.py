"""A filter gives every row a reason to go, or none. In the recipe:

curate:
  problem_filters: {round_numbers: {modulus: 10}, near_duplicates: null}
"""

from typing import TYPE_CHECKING, Literal

from posttrain.data.filters.base import Filter, FilterInputs, reasons_from

if TYPE_CHECKING:
    import polars as pl


class RoundNumbers(Filter):
    """Drops problems whose answer is a multiple of the modulus: `round_number`."""

    kind: Literal["round_numbers"] = "round_numbers"
    modulus: int = 10
    """Multiples of it go."""

    def reasons(self, frame: "pl.DataFrame", inputs: FilterInputs) -> "pl.DataFrame":
        """Look at the answers."""
        import polars as pl

        is_round = pl.col("answer").cast(pl.Int64) % self.modulus == 0
        return reasons_from(frame, pl.when(is_round).then(pl.lit("round_number")))


PARTS = {"filter": {"round_numbers": RoundNumbers}}
