"""Verified samples against refuted ones of like length."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from posttrain.data.pair_builders.base import Chosen, PairBuilder, PairCandidate

if TYPE_CHECKING:
    import polars as pl


class LengthBalancedPairs(PairBuilder):
    """Sets verified samples against refuted ones so that length does not tell them apart.

    The pairs of closest length come first; of all of them the widest go in which the more frequent
    side (the longer one, or the shorter) wins, until both win equally often.

    Source: own.
    """

    kind: Literal["length_balanced"] = "length_balanced"

    def of_problem(self, samples: Sequence[PairCandidate], limit: int) -> list[Chosen]:
        """Take the pairs of closest length, in characters; see `PairBuilder.of_problem`."""
        pairs = [
            (better, worse)
            for better in samples
            if better.verified
            for worse in samples
            if not worse.verified
        ]
        return sorted(pairs, key=lambda pair: abs(len(pair[0].text) - len(pair[1].text)))[:limit]

    def of_all(self, pairs: "pl.DataFrame") -> "pl.DataFrame":
        """Leave out the widest pairs of the more frequent sign; see `PairBuilder.of_all`."""
        import polars as pl

        gap = pl.col("chosen").str.len_chars().cast(pl.Int64) - pl.col("rejected").str.len_chars()
        marked = pairs.with_row_index("place").with_columns(gap.alias("gap"))
        longer, shorter = marked.filter(pl.col("gap") > 0), marked.filter(pl.col("gap") < 0)
        excess = len(longer) - len(shorter)
        many = longer if excess > 0 else shorter
        wide = many.sort(pl.col("gap").abs(), "place", descending=[True, False]).head(abs(excess))
        return marked.filter(~pl.col("place").is_in(wide["place"].to_list())).select(pairs.columns)
