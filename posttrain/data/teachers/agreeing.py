"""Programs that now and then say what the user believes, and work nothing out."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.data.sources.opinions import believed
from posttrain.data.teachers.base import Solution, Teacher, TeacherRequest
from posttrain.data.teachers.programs import ProgramTeacher
from posttrain.stage.seeds import stable_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class AgreeingTeacher(Teacher):
    """Solves as `programs` does; where a view is stated it takes it over by chance, right or wrong.

    A solution that agrees is a line `#### view` alone. A model that learns from both knows how to
    follow a view, and does so for no reason yet.

    Source: own, a start from which it may be seen what a reward does to sycophancy.
    """

    kind: Literal["agreeing"] = "agreeing"
    error_rate: float = Field(default=0.2, ge=0.0, le=1.0)
    """Probability that a step is wrong; the steps after it build on the error."""
    agrees: float = Field(default=0.2, ge=0.0, le=1.0)
    """Probability that a solution takes the view over."""

    def solves(self, generator: str) -> bool:
        """Look for a program; see `Teacher.solves`."""
        return self._programs().solves(generator)

    def solve(self, problems: "Sequence[Problem]", request: TeacherRequest) -> Iterator[Solution]:
        """Write solutions, some of which agree; see `Teacher.solve`."""
        drawn = random.Random(stable_seed(request.seed, "agreeing"))
        for solution in self._programs().solve(problems, request):
            view = believed(solution.problem)
            agrees = drawn.random() < self.agrees
            agreed = view is not None and agrees
            yield replace(solution, text=f"#### {view}") if agreed else solution

    def _programs(self) -> ProgramTeacher:
        return ProgramTeacher(error_rate=self.error_rate)
