"""The best samples against the worst."""

from collections.abc import Sequence
from typing import Literal

from posttrain.data.pair_builders.base import Chosen, PairBuilder, PairCandidate, diagonal


class BestWorstPairs(PairBuilder):
    """Sets the samples of the highest score against those of the lowest, if they differ.

    Source: princeton-nlp/SimPO at ba76f25, on_policy_data_gen/reward_model_annotate.py (argmax and
    argmin of the scores), which takes one pair of a problem and the first of equal scores.
    """

    kind: Literal["best_worst"] = "best_worst"

    def of_problem(self, samples: Sequence[PairCandidate], limit: int) -> list[Chosen]:
        """Split by the extremes of the score; see `PairBuilder.of_problem`."""
        scores = {sample.score for sample in samples}
        if len(scores) < 2:
            return []
        better = [sample for sample in samples if sample.score == max(scores)]
        return diagonal(better, [s for s in samples if s.score == min(scores)], limit)
