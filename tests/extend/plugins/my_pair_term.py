"""A pair term is added to the loss on pairs. In the recipe, by name:

preference:
  algorithm:
    terms:
      held: {coefficient: 0.1}
"""

from typing import ClassVar, Literal

from posttrain.learning.algorithms.pair_terms.base import PairTerm


class HeldChosen(PairTerm):
    """Keep the chosen side as likely as it was: the square of what its log-ratio is below 0."""

    kind: Literal["held"] = "held"
    METRICS: ClassVar = {"fallen": "mean of how far the chosen side fell, in nats"}

    def term(self, pairs):
        """Compute `coefficient * min(0, log-ratio of the chosen)^2`."""
        fallen_B = (pairs.chosen_B - pairs.reference_chosen_B).clamp(max=0)
        weight_B = 1.0 if pairs.weight_B is None else pairs.weight_B
        loss = self.coefficient * (weight_B * fallen_B.square()).sum() / pairs.denominator
        return loss, {"fallen": -fallen_B.detach().mean()}


PARTS = {"pair_term": {"held": HeldChosen}}
