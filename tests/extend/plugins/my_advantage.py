"""An advantage says how rewards become advantages. In the recipe:

rl:
  algorithm: {advantage: {kind: above_median}}
"""

from typing import ClassVar, Literal

from posttrain.learning.algorithms.advantages.base import Advantage


class AboveMedian(Advantage):
    """Compare each reward with the median of its group."""

    PER_TOKEN: ClassVar[bool] = False

    kind: Literal["above_median"] = "above_median"

    def estimate(self, rollouts, *, rewards_B, costs, include_B):
        """Take the median off, group by group."""
        import torch

        advantages_B = torch.zeros_like(rewards_B)
        for group in rollouts.group_B.unique():
            inside_B = rollouts.group_B == group
            advantages_B[inside_B] = rewards_B[inside_B] - rewards_B[inside_B].median()
        return advantages_B[:, None], None


PARTS = {"advantage": {"above_median": AboveMedian}}
