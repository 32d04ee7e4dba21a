"""A replay says which rollouts of earlier steps are learned from again. In the recipe:

rl:
  updates: {replay: {kind: the_last}}
"""

from typing import Literal

from posttrain.learning.rl.replays.base import ReplayAtWork, RolloutReplay
from posttrain.learning.rl.rollout import from_plain, learned_from, plain


class TheLast(RolloutReplay):
    """Learn from the last group of the step before, too."""

    kind: Literal["the_last"] = "the_last"

    def start(self):
        return OneGroup()


class OneGroup(ReplayAtWork):
    def __init__(self):
        self.kept = []

    def recall(self, fresh, config, *, step, seed):
        found, self.kept = self.kept, learned_from(fresh)[-1:]
        return found

    def state_dict(self):
        return {"kept": plain(self.kept)}

    def load_state_dict(self, state):
        self.kept = from_plain(state["kept"])


PARTS = {"replay": {"the_last": TheLast}}
