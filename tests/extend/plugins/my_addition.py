"""An addition lets answers join a group that the policy has not drawn. In the recipe:

rl:
  draw: {additions: {kind: reference_answer}}
"""

from typing import Literal

from posttrain.learning.rl.additions.base import Added, Addition, AdditionAtWork, Joining


class ReferenceAnswer(Addition):
    """Let the reference answer, and nothing else, join every group."""

    kind: Literal["reference_answer"] = "reference_answer"

    def start(self, bench):
        return References()


class References(AdditionAtWork):
    def join(self, groups, problems, at):
        return [Joining([Added(problem.answer, "reference")]) for problem in problems]


PARTS = {"addition": {"reference_answer": ReferenceAnswer}}
