"""A turn value says how the values of turns are learned from stored episodes. In the recipe:

rl_stored:
  task: tasks.rl
  inputs: {policy: sft.policy, problems: curate.problems}
  steps: 2
  problems_per_step: 4
  max_tokens: 6
  algorithm: {advantage: {kind: learned, values: {kind: whole_episode, updates: 2}}}
"""

from typing import Literal

from posttrain.learning.algorithms.turn_values.base import TurnValues


class WholeEpisode(TurnValues):
    """Every turn is worth what its episode earned in all."""

    kind: Literal["whole_episode"] = "whole_episode"

    def loss(self, read, target, turns):
        """Square the distance of the first head of V."""
        return (read.begun_BKH[..., 0] - turns.earned_B[:, None]).square()

    def advantages(self, read, target, turns):
        """What was earned beyond it."""
        return turns.earned_B[:, None] - read.begun_BKH[..., 0]


PARTS = {"turn_value": {"whole_episode": WholeEpisode}}
