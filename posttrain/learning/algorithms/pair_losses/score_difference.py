"""Contrastive policy gradient on pairs of a table: scores, regularized, are to be alike."""

from typing import ClassVar, Literal

from posttrain.learning.algorithms.pair_losses.base import LogRatios, LossOnPairs, Terms


class ScoreDifferenceLoss(LossOnPairs):
    """(R_chosen - R_rejected)^2 / 2β, with R the score less β times the log-ratio to the reference.

    Each side is the baseline of the other, so that the gradient is right whoever wrote the two, and
    which one counts as chosen does not matter. Where the scores differ by 1/2 it is β/2 times IPO.
    """

    SOURCE = "CoPG, arXiv 2406.19185, sections 3 and 4"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"reference", "scores"})

    kind: Literal["score_difference"] = "score_difference"

    def loss(self, ratios: LogRatios, *, beta: float) -> Terms:
        """Square what is left between the two sides; see `LossOnPairs.loss`."""
        from posttrain.learning.maths.pairs import pair_metrics

        assert ratios.gap_B is not None
        chosen_B, rejected_B = beta * ratios.chosen_B, beta * ratios.rejected_B
        left_B = ratios.gap_B - (chosen_B - rejected_B)
        total = ratios.expected(left_B.square() / (2 * beta))
        return total, pair_metrics(chosen_B, rejected_B)
