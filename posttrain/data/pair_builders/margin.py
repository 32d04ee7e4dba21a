"""Samples whose scores lie far enough apart."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from posttrain.data.pair_builders.base import Chosen, PairBuilder, PairCandidate

if TYPE_CHECKING:
    import polars as pl


class MarginPairs(PairBuilder):
    """Sets every sample against those whose score is lower by a margin, the widest pairs first.

    What lies closer together than the margin may be in the wrong order: a score is no measurement.

    Source: DNO-Prct, arXiv 2404.03715, algorithm 2 (pairs whose scores lie a margin apart); the
    upper bound is own.
    """

    kind: Literal["margin"] = "margin"
    at_least: float = Field(default=0.5, gt=0.0)
    """Least difference of the two scores."""
    at_most: float | None = Field(default=None, gt=0.0)
    """Greatest difference; null for none. What is too easy teaches little."""

    @model_validator(mode="after")
    def _is_an_interval(self) -> Self:
        if self.at_most is not None and self.at_most < self.at_least:
            raise ValueError(f"at_most {self.at_most} is below at_least {self.at_least}; raise it")
        return self

    def of_problem(self, samples: Sequence[PairCandidate], limit: int) -> list[Chosen]:
        """Take the widest of the pairs that keep to the margin; see `PairBuilder.of_problem`."""
        pairs = [
            (better, worse)
            for better in samples
            for worse in samples
            if self._keeps(better.score - worse.score)
        ]
        return sorted(pairs, key=lambda pair: pair[1].score - pair[0].score)[:limit]

    def of_all(self, pairs: "pl.DataFrame") -> "pl.DataFrame":
        """Leave out ready pairs outside of the margin, and those without scores."""
        import polars as pl

        gap = pl.col("chosen_score") - pl.col("rejected_score")
        kept = gap >= self.at_least
        return pairs.filter(kept if self.at_most is None else kept & (gap <= self.at_most))

    def _keeps(self, gap: float) -> bool:
        return gap >= self.at_least and (self.at_most is None or gap <= self.at_most)
