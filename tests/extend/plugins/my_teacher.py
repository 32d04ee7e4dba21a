"""A teacher writes worked solutions, which a verifier then decides about. In the recipe:

synthesize:
  teacher: {kind: counting}
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from posttrain.data.teachers.base import Solution, Teacher, TeacherRequest


class Counting(Teacher):
    """Count in unary, and give the answer."""

    kind: Literal["counting"] = "counting"

    def solve(self, problems: Sequence, request: TeacherRequest) -> Iterator[Solution]:
        """Write solutions that differ in their number of strokes."""
        for problem in problems:
            for attempt in range(request.per_problem):
                strokes = "|" * (int(problem.answer) % 5 + attempt)
                yield Solution(problem, f"{strokes}\n#### {problem.answer}", self.kind)


PARTS = {"teacher": {"counting": Counting}}
