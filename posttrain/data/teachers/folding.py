"""Programs whose steps do several operations each."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field

from posttrain.data.teachers.base import Solution, Teacher, TeacherRequest
from posttrain.data.teachers.programs import ProgramTeacher
from posttrain.stage.seeds import stable_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_STEP = re.compile(r"(-?\d+) ([-+*/]) (-?\d+) = (-?\d+)")


class _Step(NamedTuple):
    text: str
    result: str
    operations: int
    sums: bool
    """True where its last operation adds or subtracts, so that a product needs brackets around."""


class FoldingTeacher(Teacher):
    """Solves as `programs` does, and writes several operations of a calculation in one line.

    `2 + 3 = 5` and `5 * 4 = 20` become `(2 + 3) * 4 = 20`: a line takes in the one before it as
    long as it has that one's result, and no more operations than the solution's number. Lines that
    are no operation stay as they are. Between few long steps and many short ones lies the grain.

    Source: own, solutions of several grains.
    """

    kind: Literal["folding"] = "folding"
    error_rate: float = Field(default=0.2, ge=0.0, le=1.0)
    """Probability that an operation is wrong; those after it build on the error."""
    operations: tuple[int, ...] = Field(default=(1, 2, 4), min_length=1)
    """Most operations of a line, each number as often the one of a solution as the others."""

    def solves(self, generator: str) -> bool:
        """Look for a program; see `Teacher.solves`."""
        return self._programs().solves(generator)

    def solve(self, problems: "Sequence[Problem]", request: TeacherRequest) -> Iterator[Solution]:
        """Write solutions in longer steps; see `Teacher.solve`."""
        drawn = random.Random(stable_seed(request.seed, "folded"))
        for solution in self._programs().solve(problems, request):
            most = drawn.choice(self.operations)
            text = "\n".join(folded_steps(solution.text.splitlines(), most))
            yield replace(solution, text=text)

    def _programs(self) -> ProgramTeacher:
        return ProgramTeacher(error_rate=self.error_rate)


def folded_steps(lines: Sequence[str], most: int) -> list[str]:
    """Write up to `most` operations in a line.

    >>> folded_steps(["2 + 3 = 5", "5 * 4 = 20", "20 - 1 = 19", "#### 19"], 2)
    ['(2 + 3) * 4 = 20', '20 - 1 = 19', '#### 19']

    Args:
        lines: Of a solution.
        most: Operations of a line.

    Returns:
        Its lines; a line's result is that of its last operation, right or wrong.

    """
    found: list[str] = []
    before: _Step | None = None
    for line in lines:
        step = _read(line, before if before and before.operations < most else None)
        if before is not None and (step is None or step.operations == 1):
            found.append(f"{before.text} = {before.result}")
        if step is None:
            found.append(line)
        before = step
    return found if before is None else [*found, f"{before.text} = {before.result}"]


def _read(line: str, before: _Step | None) -> _Step | None:
    """A line as a step, with the one before in the place of its result; None if it is none."""
    matched = _STEP.fullmatch(line)
    if matched is None:
        return None
    left, operator, right, result = matched.groups()
    sums = operator in "+-"
    if before is None or before.result not in (left, right):
        return _Step(f"{left} {operator} {right}", result, 1, sums)
    if left == before.result:
        inner = f"({before.text})" if before.sums and not sums else before.text
        text = f"{inner} {operator} {right}"
    else:
        text = f"{left} {operator} ({before.text})"
    return _Step(text, result, before.operations + 1, sums)
