"""The divergence from the reference, by what the policy draws itself while it learns from pairs."""

from typing import ClassVar, Literal

from posttrain.learning.algorithms.pair_losses.base import Terms
from posttrain.learning.algorithms.pair_terms.base import PairLikelihoods, PairTerm


class OwnDivergence(PairTerm):
    """KL(policy || reference) by the policy's own samples: log p x sg(log p - log p_reference).

    Pairs say nothing about answers that are in none of them; what the policy draws does. The
    gradient is that of the divergence, as the samples are the policy's of the very step.
    """

    SOURCE = "HyPO, arXiv 2406.01462, algorithm 1"
    NEEDS: ClassVar[frozenset[str]] = frozenset({"own_samples"})
    METRICS: ClassVar = {"own_kl": "divergence from the reference by own samples, in nats"}

    kind: Literal["own_divergence"] = "own_divergence"

    def term(self, pairs: PairLikelihoods) -> Terms:
        """Score the policy's own samples by their log-ratio; see `PairTerm.term`."""
        from posttrain.learning.maths.pairs import weighted_sum

        assert pairs.own_B is not None
        ratio_B = (pairs.own_B - pairs.own_reference_B).detach()
        total = weighted_sum(ratio_B * pairs.own_B, pairs.weight_B)
        return self.coefficient * total / pairs.denominator, {"own_kl": ratio_B.mean()}
