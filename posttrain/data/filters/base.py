"""What a filter is: a part that gives every row of a table a reason to go, or none."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from posttrain.data.filters.parallel import IN_PROCESS, Parallel
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    import polars as pl

KEEP = ""
"""The reason of a row that stays."""


@dataclass(frozen=True)
class FilterInputs:
    """The other tables that a filter may compare rows with.

    A filter names what it needs in `NEEDS` (`heldout`, `problems`); the rest may be None.

    Attributes:
        heldout: Evaluation problems, at least `id` and `prompt`.
        problems: Problems that stay, where solutions are filtered.
        dropped: Problems that go, with their `reason`, where solutions are filtered.
        difficulty_edges: Greatest difficulty of each bucket but the last; empty gives every
            difficulty a bucket of its own.
        parallel: How the expensive steps are shared out.

    """

    heldout: "pl.DataFrame | None" = None
    problems: "pl.DataFrame | None" = None
    dropped: "pl.DataFrame | None" = None
    difficulty_edges: tuple[int, ...] = ()
    parallel: Parallel = IN_PROCESS


class Filter(Part):
    """Keeps or drops rows of a table of problems or solutions, each dropped one with a reason."""

    @property
    def label(self) -> str:
        """Name of the filter in a recipe's list, unique there."""
        return self.kind

    def reasons(self, frame: "pl.DataFrame", inputs: FilterInputs) -> "pl.DataFrame":
        """Give every row of `frame` a reason to go.

        Args:
            frame: PROBLEMS or COMPLETIONS, as the filters before this one left it.
            inputs: The other tables.

        Returns:
            One row per row of `frame`, in its order: `reason`, empty where the row stays, and
            `match`, the id of the row that speaks against it, empty where none does.

        """
        raise NotImplementedError


def reasons_from(frame: "pl.DataFrame", reason: "pl.Expr") -> "pl.DataFrame":
    """Make the table of reasons from an expression.

    Args:
        frame: The rows.
        reason: An expression over `frame` that gives the reason, or null to keep.

    Returns:
        `reason` and an empty `match` per row.

    """
    import polars as pl

    # Repeated, so that an expression of literals alone gives a row per row too.
    match = pl.repeat("", pl.len(), dtype=pl.String).alias("match")
    return frame.select(reason.cast(pl.String).fill_null(KEEP).alias("reason"), match)
