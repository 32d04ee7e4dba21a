"""A selection says which rollouts of a group are learned from. In the recipe:

rl:
  draw: {select: {kind: extremes}}
"""

from typing import Literal

from posttrain.learning.rl.selections.base import Selection


class Extremes(Selection):
    """Learn from the best and the worst rollout of a group."""

    kind: Literal["extremes"] = "extremes"

    def keep(self, rollouts, draw):
        paid = [place for place, each in enumerate(rollouts) if each.judged]
        paid.sort(key=lambda place: rollouts[place].reward)
        return sorted({*paid[:1], *paid[-1:]})

    def learned(self, group_size):
        return min(2, group_size)


PARTS = {"selection": {"extremes": Extremes}}
