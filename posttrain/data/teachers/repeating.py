"""Programs that state their answer more often than once."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.data.teachers.base import Solution, Teacher, TeacherRequest
from posttrain.data.teachers.programs import ProgramTeacher
from posttrain.stage.seeds import stable_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class RepeatingTeacher(Teacher):
    """Solves as `programs` does, and writes its last line up to `most` times again.

    How often is drawn by chance, whether the solution is right or wrong: a model learns a length
    that it can do without, which is what rewards of length are tried on.

    Source: own, a start for rewards of length.
    """

    kind: Literal["repeating"] = "repeating"
    error_rate: float = Field(default=0.2, ge=0.0, le=1.0)
    """Probability that a step is wrong; the steps after it build on the error."""
    most: int = Field(default=3, ge=1)
    """Most repetitions; 0 to as many are drawn, each as often as the others."""

    def solves(self, generator: str) -> bool:
        """Look for a program; see `Teacher.solves`."""
        return self._programs().solves(generator)

    def solve(self, problems: "Sequence[Problem]", request: TeacherRequest) -> Iterator[Solution]:
        """Write solutions that repeat their answers; see `Teacher.solve`."""
        drawn = random.Random(stable_seed(request.seed, "repetitions"))
        for solution in self._programs().solve(problems, request):
            last = f"\n{solution.text.splitlines()[-1]}"
            again = last * drawn.randint(0, self.most)
            yield replace(solution, text=f"{solution.text}{again}")

    def _programs(self) -> ProgramTeacher:
        return ProgramTeacher(error_rate=self.error_rate)
