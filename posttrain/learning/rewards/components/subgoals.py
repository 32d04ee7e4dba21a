"""How many of a solution's steps an answer has."""

from collections.abc import Sequence
from typing import Literal

from posttrain.learning.rewards.components.base import Answers, Component, Inquiry


class SubgoalsComponent(Component):
    """The share of a solution's lines, but the last, that an answer has in their order.

    Solutions come through the stage's port `traces`; of several the best met one counts. The last
    line is the goal itself, which another component pays. A problem without a solution of several
    lines names no subgoals, and pays 0 for them.
    """

    SOURCE = "Words as Beacons, arXiv 2410.08632: a reward for each subgoal that a teacher named"

    kind: Literal["subgoals"] = "subgoals"

    def ports(self) -> Sequence[str]:
        """Return the port of the solutions; see `Component.ports`."""
        return ("traces",)

    def score(self, group: Answers, known: Inquiry) -> Sequence[float | None]:
        """Count the lines that are met; see `Component.score`."""
        solutions = known.tables.traces().get(group.problem.id, ())
        goals = [each for text in solutions if (each := _lines(text)[:-1])]
        return [
            max((_met(each, _lines(text)) / len(each) for each in goals), default=0.0)
            for text in group.texts
        ]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _met(goals: Sequence[str], lines: Sequence[str]) -> int:
    """Count goals, one after the other, each behind where the one before it was met."""
    met = begin = 0
    for goal in goals:
        if goal in lines[begin:]:
            met, begin = met + 1, lines.index(goal, begin) + 1
    return met
