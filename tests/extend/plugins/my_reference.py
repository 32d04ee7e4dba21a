"""A reference says how the policy that a divergence is measured from follows. In the recipe:

rl:
  reference: {kind: doubling}
  algorithm: {regularizers: {kl: {coefficient: 0.01}}}
"""

from typing import Literal

from posttrain.learning.rl.references.base import ReferencePart


class Doubling(ReferencePart):
    """Make it the policy after 1, 2, 4, 8 and so on updates."""

    kind: Literal["doubling"] = "doubling"

    def step_toward_policy(self, num_updates):
        return float(num_updates & (num_updates - 1) == 0)


PARTS = {"reference": {"doubling": Doubling}}
