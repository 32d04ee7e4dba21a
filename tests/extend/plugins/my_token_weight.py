"""A token weight is a factor on the loss of each token. In the recipe:

rl:
  algorithm: {token_weights: {surprise: {power: 0.5}}}
"""

from typing import Literal

from posttrain.learning.algorithms.token_weights.base import TokenWeight


class Surprise(TokenWeight):
    """Weigh a token the more the less probable it was."""

    kind: Literal["surprise"] = "surprise"
    power: float = 1.0
    """0 weighs all tokens alike."""

    def of_update(self, logprobs_BT, *, old_logprobs_BT, batch):
        """Compute `(1 - p) ** power` of the old policy's p."""
        return (1 - old_logprobs_BT.exp()).clamp(min=1e-6) ** self.power


PARTS = {"token_weight": {"surprise": Surprise}}
