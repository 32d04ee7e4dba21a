"""A ranking scores problems by an earlier run of RL, and the highest are chosen. In the recipe:

select:
  task: tasks.select
  ranking: last_seen
  number: 2
  least_visits: 1
  inputs: {problems: curate.problems, rollouts: rl.rollouts}
"""

from typing import Literal

from posttrain.data.rankings.base import Ranking


class LastSeen(Ranking):
    """Take the problems that were solved most at their last visit."""

    kind: Literal["last_seen"] = "last_seen"

    def scores(self, curves):
        """Give the last accuracy of each."""
        return {name: values[-1] for name, values in curves.items()}


PARTS = {"ranking": {"last_seen": LastSeen}}
