"""Contrastive preference learning: the policy's own log-probabilities are the advantages."""

from typing import ClassVar, Literal

from pydantic import Field

from posttrain.learning.algorithms.pair_losses.base import LogRatios, LossOnPairs, Terms


class ContrastiveLoss(LossOnPairs):
    """-log σ(β log p_chosen - bias x β log p_rejected): no reference, and no reward.

    By the regret model of preferences β log p is the optimal advantage, summed over the steps of a
    segment, each at the discount by how many were before it; here the steps are the tokens that are
    compared: of a completion, or of the step in which two differ. A bias below 1 is the
    conservative one: of two policies that tell a pair apart equally well it likes that which makes
    what is in the data likelier.
    """

    SOURCE = "CPL, arXiv 2310.13639, equations 5 and 8; jhejna/cpl, research/algs/cpl.py"
    LABEL_PROBS: ClassVar[bool] = True
    # What a term's reference says of the pairs is computed once, by way of it.
    FIXED: ClassVar[frozenset[str]] = frozenset({"discount"})

    kind: Literal["contrastive"] = "contrastive"
    bias: float = Field(default=0.5, gt=0.0, le=1.0)
    """The paper's λ: weight of the rejected side; 1 is symmetric."""
    discount: float = Field(default=1.0, gt=0.0, le=1.0)
    """The paper's γ: weight of each token against the one before it, from 1 at the first that is
    compared; 1 is the plain sum, as in the authors' code."""

    @property
    def token_discount(self) -> float:
        """The discount; see `LossOnPairs.token_discount`."""
        return self.discount

    def loss(self, ratios: LogRatios, *, beta: float) -> Terms:
        """Compare the two sides, the worse one at the bias; see `LossOnPairs.loss`."""
        from torch.nn.functional import logsigmoid

        from posttrain.learning.maths.pairs import pair_metrics

        chosen_B, rejected_B = beta * ratios.chosen_B, beta * ratios.rejected_B
        total = ratios.expected(
            -logsigmoid(chosen_B - self.bias * rejected_B),
            -logsigmoid(rejected_B - self.bias * chosen_B),
        )
        return total, pair_metrics(chosen_B, rejected_B)
