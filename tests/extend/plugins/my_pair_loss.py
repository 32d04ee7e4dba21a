"""A pair loss says what pairs of completions are learned by. In the recipe:

preference:
  algorithm:
    loss: {kind: exponential, sharpness: 0.5}
"""

from typing import Literal

from posttrain.learning.algorithms.pair_losses.base import LossOnPairs


class Exponential(LossOnPairs):
    """Cost a pair exp(-margin), so that the pairs in the wrong order count most."""

    kind: Literal["exponential"] = "exponential"
    NEEDS = frozenset({"reference"})
    LABEL_PROBS = True
    sharpness: float = 1.0
    """Factor on the margin."""

    def loss(self, ratios, *, beta):
        """Compute `exp(-sharpness * beta * m)`, m the difference of log-ratios."""
        from posttrain.learning.maths.pairs import pair_metrics

        good_B, bad_B = beta * ratios.chosen_B, beta * ratios.rejected_B
        scaled_B = self.sharpness * (good_B - bad_B)
        return ratios.expected((-scaled_B).exp(), scaled_B.exp()), pair_metrics(good_B, bad_B)


PARTS = {"pair_loss": {"exponential": Exponential}}
