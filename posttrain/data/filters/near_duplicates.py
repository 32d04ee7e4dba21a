"""Problems that say nearly the same as an earlier one."""

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.data.filters.base import Filter, FilterInputs

if TYPE_CHECKING:
    import polars as pl


class NearDuplicatesFilter(Filter):
    """Drops problems that say nearly the same as an earlier one: `near_duplicate`.

    Answers and symbols (numbers, operators, brackets) must be equal, so variants with other
    numbers stay, and the Jaccard similarity of the word n-grams at least `similarity`. Candidates
    come from MinHash with banding; each is compared exactly.
    """

    SOURCE = "Broder, 'On the resemblance and containment of documents', 1997"

    kind: Literal["near_duplicates"] = "near_duplicates"
    similarity: float = Field(default=0.8, ge=0.7, le=1.0)
    """Least Jaccard similarity of two duplicates."""
    shingle: int = Field(default=3, ge=1)
    """Words per n-gram of that comparison."""

    def reasons(self, frame: "pl.DataFrame", inputs: FilterInputs) -> "pl.DataFrame":
        """Compare with earlier rows; see `Filter.reasons`."""
        from posttrain.data.filters.minhash import near_duplicates

        return near_duplicates(
            frame, self.similarity, shingle=self.shingle, parallel=inputs.parallel
        )
