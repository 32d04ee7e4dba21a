"""A regularizer is added to rewards, advantages or loss. In the recipe, by what it measures:

rl:
  algorithm:
    regularizers:
      certainty: {coefficient: {metric: rl/certainty, from: 0.001, to: 0.01, low: -2.0, high: -0.5}}
"""

from typing import ClassVar, Literal

from posttrain.learning.algorithms.regularizers.base import Regularizer


class Certainty(Regularizer):
    """Take log p of the tokens drawn for a cost, so that a sure policy pays most."""

    kind: Literal["certainty"] = "certainty"
    METRICS: ClassVar = {"certainty": "mean log-probability of the drawn tokens, in nats"}

    def loss(self, logprobs_BT, *, log_ratio_BT, entropy_BT, batch, share):
        """Compute `coefficient * mean log p`, averaged as the algorithm averages its loss."""
        from posttrain.learning.maths.reduce import aggregate, detached, masked_mean

        cost = aggregate(
            logprobs_BT,
            share.mask_BT,
            aggregation=share.aggregation,
            denominator=share.denominator,
        )
        measured = {"certainty": masked_mean(logprobs_BT, share.mask_BT)}
        return self.coefficient * cost, detached(measured)


PARTS = {"regularizer": {"certainty": Certainty}}
