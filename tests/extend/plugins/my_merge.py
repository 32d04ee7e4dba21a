"""A merge makes one model of the weights of several. In the recipe:

merge:
  task: tasks.merge
  method: largest
  inputs: {policies: {sft: sft.policy, rl: rl.policy}}
"""

from typing import Literal

from posttrain.learning.models.merges.base import Merge


class Largest(Merge):
    """Take each weight of the model in which it is largest."""

    kind: Literal["largest"] = "largest"

    def merged(self, given):
        """Compare them weight by weight."""
        import torch

        one, *others = given.policies.values()
        largest = dict(one)
        for other in others:
            largest = {name: torch.maximum(largest[name], other[name]) for name in largest}
        return largest


PARTS = {"merge": {"largest": Largest}}
