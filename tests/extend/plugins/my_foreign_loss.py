"""A foreign loss says how tokens enter the loss that the policy has not drawn. In the recipe:

rl:
  algorithm: {foreign: {kind: liked}}
"""

from typing import Literal

from posttrain.learning.algorithms.foreign_losses.base import ForeignLoss


class Liked(ForeignLoss):
    """Learn what did better than its group as fine-tuning does, and nothing of the rest."""

    kind: Literal["liked"] = "liked"

    def token_loss(self, logprobs_BT, before_BT, advantages_BT):
        """Compute `-max(A, 0) log p`."""
        return -advantages_BT.clamp(min=0) * logprobs_BT


PARTS = {"foreign_loss": {"liked": Liked}}
