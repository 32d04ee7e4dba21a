"""What every loss on pairs is given and gives back, and what one that is a part of its own is."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from torch import Tensor

Terms = tuple["Tensor", Mapping[str, "Tensor"]]
"""A loss, a scalar, and its metrics."""

PAIR_LOSS_NEEDS: Mapping[str, str] = {
    "reference": "log-ratios to the reference, in place of log-probabilities of the policy alone",
    "scores": "the score of the chosen completion less that of the rejected one",
}
"""What a loss on pairs may ask for in its `NEEDS`, and what that is."""


class LogRatios(NamedTuple):
    """What the formula of a loss is given of a micro-batch of pairs.

    Log-ratios of policy to reference in nats, summed over a completion's tokens or their mean; of a
    loss that needs no reference the policy's log-probabilities.
    """

    chosen_B: "Tensor"
    rejected_B: "Tensor"
    reference_point: "Tensor"
    """Of `kto_reference_point`, a scalar; 0 of a loss that needs no mismatched completions."""
    denominator: float
    """Number of pairs of the whole step, or the sum of their weights."""
    known: "tuple[Tensor, Tensor] | None" = None
    """How much each pair counts, and the probability that its chosen one is the better; None where
    each counts 1 and is sure."""
    gap_B: "Tensor | None" = None
    """Score of the chosen completion less that of the rejected one; of a loss that needs `scores`.
    """

    @property
    def weight_B(self) -> "Tensor | None":
        """How much each pair counts; None where all count 1."""
        return self.known and self.known[0]

    def expected(self, loss_B: "Tensor", swapped_B: "Tensor | None" = None) -> "Tensor":
        """Sum the losses of the pairs by their weights and labels, over the denominator.

        Args:
            loss_B: Of each pair as it stands.
            swapped_B: Of each pair the other way round, where labels may be unsure; None for a loss
                that does not admit them.

        Returns:
            A scalar.

        """
        if self.known is not None:
            weight_B, sure_B = self.known
            if swapped_B is not None:
                loss_B = sure_B * loss_B + (1 - sure_B) * swapped_B
            loss_B = weight_B * loss_B
        return loss_B.sum() / self.denominator


class LossOnPairs(Part, Schedulable):
    """What pairs are learned by; derive from it and define `loss`.

    `NEEDS` names what it must be given, of `PAIR_LOSS_NEEDS`. Its numbers may be schedules.
    """

    NEEDS: ClassVar[frozenset[str]] = frozenset()
    LABEL_PROBS: ClassVar[bool] = False
    """True where it takes `known` label probabilities; others refuse pairs that are not sure."""
    METRICS: ClassVar[Mapping[str, str]] = {}
    """What it measures beside the figures of its pairs, with a description by name."""

    @property
    def token_discount(self) -> float:
        """Weight of each token of a completion against the one before it; 1 sums them plainly."""
        return 1.0

    def loss(self, ratios: LogRatios, *, beta: float) -> Terms:
        """Compute the loss of some pairs.

        Args:
            ratios: Of chosen and rejected completions, with gradient.
            beta: The algorithm's scale of the implicit reward.

        Returns:
            This micro-batch's share of the loss of the step, a scalar; and metrics as means over
            its pairs: those of `maths.pairs.pair_metrics`, and those in `METRICS`.

        """
        raise NotImplementedError
