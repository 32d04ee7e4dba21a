"""Samples of the policy against those of a reference."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from posttrain.data.pair_builders.base import Chosen, PairBuilder, PairCandidate, diagonal


class PolicyVsReferencePairs(PairBuilder):
    """Sets each sample of the policy against samples of a reference; the higher score is chosen.

    The samples of the reference arrive at the port `reference_samples`: those of the policy that
    training began with, of an earlier round, or of a teacher. Equal scores give no pair.

    Source: XPO, arXiv 2405.21046, algorithm 1: one sample of the policy against one of the
    reference. Several of each, crossed, are own.
    """

    NEEDS: ClassVar[frozenset[str]] = frozenset({"reference_samples"})

    kind: Literal["policy_vs_reference"] = "policy_vs_reference"

    def of_problem(self, samples: Sequence[PairCandidate], limit: int) -> list[Chosen]:
        """Cross the two kinds of samples; see `PairBuilder.of_problem`."""
        own = [sample for sample in samples if not sample.of_reference]
        others = [sample for sample in samples if sample.of_reference]
        met = diagonal(own, others, len(own) * len(others))
        return [
            (one, other) if one.score > other.score else (other, one)
            for one, other in met
            if one.score != other.score
        ][:limit]
