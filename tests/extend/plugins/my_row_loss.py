"""A row loss says what each token of a row costs in supervised fine-tuning. In the recipe:

sft:
  loss: {kind: focal, power: 1.0}
"""

from typing import Literal

from posttrain.learning.training.row_losses.base import RowLoss


class Focal(RowLoss):
    """Learn the less from a token the surer the policy is of it."""

    kind: Literal["focal"] = "focal"
    power: float = 2.0
    """0 is cross-entropy."""

    def losses(self, tokens):
        """Compute `-(1 - p) ** power log p`."""
        away = 1 - tokens.logprobs_N.exp()
        return -(away.clamp(min=1e-6) ** self.power) * tokens.logprobs_N


PARTS = {"row_loss": {"focal": Focal}}
