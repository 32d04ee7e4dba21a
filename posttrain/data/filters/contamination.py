"""Problems for training that are, or nearly are, problems of the evaluation."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from posttrain.data.filters.base import Filter, FilterInputs

if TYPE_CHECKING:
    import polars as pl


class ContaminationFilter(Filter):
    """Drops problems of the evaluation: `evaluation_prompt`, or `evaluation_ngram`.

    The first are equal to an evaluation problem but for case, white space and punctuation; the
    second share a run of words with one, numbers left out, so that a problem with other numbers
    counts as the same. `match` is the evaluation problem with the least id.
    """

    SOURCE = "GPT-3 used 13 words, arXiv:2005.14165 appendix C"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"heldout"})

    kind: Literal["contamination"] = "contamination"
    ngram: int | None = Field(default=13, ge=4)
    """Words in a row that a problem may not share with an evaluation problem; null compares whole
    prompts only."""
    boilerplate: int = Field(default=20, ge=1)
    """Words in a row that stand in more problems than this are a template and prove nothing."""

    def reasons(self, frame: "pl.DataFrame", inputs: FilterInputs) -> "pl.DataFrame":
        """Compare with `inputs.heldout`; see `Filter.reasons`."""
        from posttrain.data.filters.overlap import evaluation_overlap

        assert inputs.heldout is not None
        return evaluation_overlap(
            frame,
            inputs.heldout,
            ngram=self.ngram,
            boilerplate=self.boilerplate,
            parallel=inputs.parallel,
        )
