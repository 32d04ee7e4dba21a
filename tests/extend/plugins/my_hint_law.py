"""A hint law says how much of a solution stands before what is drawn. In the recipe:

rl_hinted:
  task: tasks.rl
  inputs: {policy: sft.policy, problems: curate.problems, traces: curate.traces}
  producer: {kind: hinted, law: {kind: halving, shorter: 0.5}}
  steps: 1
  problems_per_step: 3
  group_size: 2
  max_tokens: 6
"""

from typing import Literal

from posttrain.learning.rl.hints.base import HintLaw


class Halving(HintLaw):
    """Give half, and half of that to the other half of the group."""

    kind: Literal["halving"] = "halving"
    shorter: float
    """What the second share is of the first."""

    def portions(self, group_size):
        return (1, group_size - 1)

    def share(self, tried, recalled, draw):
        return 0.5 * self.shorter ** len(tried)


PARTS = {"hint_law": {"halving": Halving}}
