"""A branching says where episodes of a group begin inside another one. In the recipe:

rl_play:
  producer: {kind: episodes, branching: {kind: early, before: 2}}
"""

from typing import Literal

from posttrain.learning.episodes.branches.base import Branching


class Early(Branching):
    """Begin two episodes, and branch from whatever goes on before a turn."""

    kind: Literal["early"] = "early"
    before: int
    """The turn, 0-based."""

    def begins(self, group_size):
        return min(2, group_size)

    def branches(self, standing, room, draw):
        return [place for place, each in enumerate(standing) if each.turns < self.before][:room]

    @property
    def tokens(self):
        return 0


PARTS = {"branching": {"early": Early}}
