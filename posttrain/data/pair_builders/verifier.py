"""Verified samples against refuted ones."""

from collections.abc import Sequence
from typing import Literal

from posttrain.data.pair_builders.base import Chosen, PairBuilder, PairCandidate, diagonal


class VerifierPairs(PairBuilder):
    """Sets every verified sample against every refuted one.

    Source: Iterative RPO, arXiv 2404.19733: answers that are right against answers that are wrong.
    """

    kind: Literal["verifier"] = "verifier"

    def of_problem(self, samples: Sequence[PairCandidate], limit: int) -> list[Chosen]:
        """Split by the verifier; see `PairBuilder.of_problem`."""
        better = [sample for sample in samples if sample.verified]
        return diagonal(better, [sample for sample in samples if not sample.verified], limit)
