"""A surrogate says how the ratio to the old policy enters the loss. In the recipe:

rl:
  algorithm: {surrogate: {kind: soft_clip, width: 0.3}}
"""

from typing import Literal

from pydantic import Field

from posttrain.learning.algorithms.surrogates.base import Surrogate, nothing_clipped


class SoftClip(Surrogate):
    """Bend the log-ratio by a tangent, so that no token loses its gradient at once."""

    kind: Literal["soft_clip"] = "soft_clip"
    width: float = Field(default=0.2, gt=0.0)
    """Log-ratio that is never passed."""

    def token_loss(self, logprobs_BT, log_ratio_BT, batch):
        """Compute `-A exp(width * tanh(l / width))`, l the log-ratio."""
        bent_BT = self.width * (log_ratio_BT / self.width).tanh()
        return nothing_clipped(-batch.advantages_BT * bent_BT.exp())


PARTS = {"surrogate": {"soft_clip": SoftClip}}
