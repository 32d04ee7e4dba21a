"""Programs that leave out some of their steps."""

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


class SkippingTeacher(Teacher):
    """Solves as `programs` does, and leaves out lines before the last, each by chance.

    A solution's share of lines that stay is one of `keeps`, so that solutions of one problem have
    several lengths: where fewer steps are written, each does more of the work.

    Source: own, solutions of several lengths.
    """

    kind: Literal["skipping"] = "skipping"
    error_rate: float = Field(default=0.2, ge=0.0, le=1.0)
    """Probability that a step is wrong; the steps after it build on the error."""
    keeps: tuple[float, ...] = Field(default=(0.0, 0.5, 1.0), min_length=1)
    """Probabilities with which a step stays, each as often the one of a solution as the others."""

    def solves(self, generator: str) -> bool:
        """Look for a program; see `Teacher.solves`."""
        return self._programs().solves(generator)

    def solve(self, problems: "Sequence[Problem]", request: TeacherRequest) -> Iterator[Solution]:
        """Write solutions without some of their steps; see `Teacher.solve`."""
        drawn = random.Random(stable_seed(request.seed, "skipped"))
        for solution in self._programs().solve(problems, request):
            *steps, last = solution.text.splitlines()
            keep = drawn.choice(self.keeps)
            kept = [step for step in steps if drawn.random() < keep]
            yield replace(solution, text="\n".join([*kept, last]))

    def _programs(self) -> ProgramTeacher:
        return ProgramTeacher(error_rate=self.error_rate)
