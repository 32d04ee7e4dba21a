"""A regularizer is added to rewards, advantages or loss. In the recipe:

rl:
  algorithm: {regularizers: {certainty: {coefficient: 0.01}}}
"""

from typing import Literal

from posttrain.learning.algorithms.regularizers.base import Regularizer


class Certainty(Regularizer):
    """Take log p of the token drawn for a cost, so that a sure policy pays nothing."""

    kind: Literal["certainty"] = "certainty"

    @property
    def changes_advantages(self) -> bool:
        """True: it is paid with the advantage."""
        return True

    def advantage_bonus(self, old_logprobs_BT):
        """Compute `coefficient * log p`."""
        return self.coefficient * old_logprobs_BT


PARTS = {"regularizer": {"certainty": Certainty}}
