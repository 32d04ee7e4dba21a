"""Step-level advantage preference optimization: a pair is pushed apart as far as its values are."""

from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.pair_losses.base import LogRatios, LossOnPairs, Terms


class AdvantageMarginLoss(LossOnPairs):
    """-log σ(β m - α (Q_chosen - Q_rejected)), m the margin of DPO.

    Both steps are taken from one state, so that the difference of their values is that of their
    advantages. A pair of values far apart is pushed further than one of values close by.
    """

    SOURCE = (
        "Step-APO: CPL, arXiv 2409.08642; keesh0410/CPL-Reasoning at 46f1e2f,"
        " apo/LLaMA-Factory-0.8.3/src/llamafactory/train/dpo/trainer.py (dpo_loss, sigmoid_a)"
    )
    NEEDS: ClassVar[frozenset[str]] = frozenset({"reference", "scores"})

    kind: Literal["advantage_margin"] = "advantage_margin"
    scale: float = Field(default=1.0, ge=0.0)
    """Their α: what a difference of values of 1 asks of the margin; 0 is DPO."""

    def loss(self, ratios: LogRatios, *, beta: float) -> Terms:
        """Ask of the margin the difference of values; see `LossOnPairs.loss`."""
        from torch.nn.functional import logsigmoid

        from posttrain.learning.maths.pairs import pair_metrics

        assert ratios.gap_B is not None
        chosen_B, rejected_B = beta * ratios.chosen_B, beta * ratios.rejected_B
        total = ratios.expected(-logsigmoid(chosen_B - rejected_B - self.scale * ratios.gap_B))
        return total, pair_metrics(chosen_B, rejected_B)
