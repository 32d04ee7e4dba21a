"""Programs that state, under each solution, a confidence that means nothing yet."""

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


class ConfidentTeacher(Teacher):
    """Solves as `programs` does, and ends with a line `Confidence: 0.7`.

    The number is drawn by chance, whether the solution is right or wrong: a model learns the form
    of it and nothing more, so that what it means is left to a reward such as `brier`.

    Source: own, a start for rewards of calibration.
    """

    kind: Literal["confident"] = "confident"
    error_rate: float = Field(default=0.2, ge=0.0, le=1.0)
    """Probability that a step is wrong; the steps after it build on the error."""
    confidences: tuple[float, ...] = Field(default=(0.1, 0.3, 0.5, 0.7, 0.9), min_length=1)
    """What is stated, each as often as the others."""

    def solves(self, generator: str) -> bool:
        """Look for a program; see `Teacher.solves`."""
        return self._programs().solves(generator)

    def solve(self, problems: "Sequence[Problem]", request: TeacherRequest) -> Iterator[Solution]:
        """Write solutions with confidences under them; see `Teacher.solve`."""
        drawn = random.Random(stable_seed(request.seed, "confidence"))
        for solution in self._programs().solve(problems, request):
            stated = drawn.choice(self.confidences)
            yield replace(solution, text=f"{solution.text}\nConfidence: {stated:g}")

    def _programs(self) -> ProgramTeacher:
        return ProgramTeacher(error_rate=self.error_rate)
