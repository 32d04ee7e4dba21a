"""What is added to a loss on pairs: a part with a coefficient."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pydantic import Field

from posttrain.learning.algorithms.pair_losses.base import Terms
from posttrain.stage.schedule import Schedulable
from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from torch import Tensor

PAIR_TERM_NEEDS: Mapping[str, str] = {
    "own_samples": "an answer to each pair's prompt that the policy of the step draws itself",
}
"""What a term may ask for in its `NEEDS`, and what that is."""


class PairLikelihoods(NamedTuple):
    """Log-probabilities of a micro-batch of pairs in nats, reduced as the algorithm reduces them.

    Those of the policy have gradients; those of the reference are 0 where nobody needs them.
    """

    chosen_B: "Tensor"
    rejected_B: "Tensor"
    reference_chosen_B: "Tensor"
    reference_rejected_B: "Tensor"
    own_B: "Tensor | None"
    """Of the policy's own samples, one for each pair; None unless a term needs them."""
    own_reference_B: "Tensor"
    """Of the same, by the reference."""
    denominator: float
    """Number of pairs of the whole step, or the sum of their weights."""
    weight_B: "Tensor | None"
    """How much each pair counts; None where all count 1."""


class PairTerm(Part, Schedulable):
    """Is added to the loss on pairs; derive from it and define `term`.

    `NEEDS` names what it must be given, of `PAIR_TERM_NEEDS`. Its numbers may be schedules.
    """

    NEEDS: ClassVar[frozenset[str]] = frozenset()
    METRICS: ClassVar[Mapping[str, str]] = {}
    """What it measures, with a description by name."""

    coefficient: float = Field(gt=0.0)
    """Its weight."""

    def term(self, pairs: PairLikelihoods) -> Terms:
        """Compute what is added, with the coefficient.

        Args:
            pairs: Of the micro-batch, with what the part needs.

        Returns:
            This micro-batch's share of the loss of the step, a scalar; and metrics as means over
            its pairs, by the names in `METRICS`.

        """
        raise NotImplementedError
