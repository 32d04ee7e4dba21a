"""An optimizer says how gradients become steps. In the recipe:

sft:
  optimization: {optimizer: {kind: momentum, share: 0.8}, learning_rate: 0.01}
"""

from typing import Literal

from posttrain.learning.models.optimizers.base import OptimizerPart


class Momentum(OptimizerPart):
    """Go along a sum of earlier gradients, each smaller than the next by a factor."""

    kind: Literal["momentum"] = "momentum"
    share: float
    """The factor."""

    def build(self, tensors, *, weight_decay, states, sharded):
        import torch

        groups = [
            {"params": list(tensors.matrices), "weight_decay": weight_decay},
            {"params": list(tensors.others), "weight_decay": 0.0},
        ]
        return {"momentum": torch.optim.SGD(groups, lr=0.0, momentum=self.share)}


PARTS = {"optimizer": {"momentum": Momentum}}
