"""Programs that rate themselves, under each solution, in lines that mean nothing yet."""

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


class SelfRatingTeacher(Teacher):
    """Solves as `programs` does, and ends with a line such as `Score: 0.3` for each rating.

    Every number is drawn by chance and for itself, whether the solution is right or wrong and
    whatever the other lines say. A careless reward may pay for one line or another, by
    `self_report`; what it pays for one then says nothing of the others, so that a line that is
    never paid shows what gaming the others leads on to.

    Source: own, a start for rewards that can be gamed.
    """

    kind: Literal["self_rating"] = "self_rating"
    error_rate: float = Field(default=0.2, ge=0.0, le=1.0)
    """Probability that a step is wrong; the steps after it build on the error."""
    ratings: tuple[str, ...] = Field(default=("Confidence", "Done", "Score"), min_length=1)
    """What the lines begin with, in their order."""
    values: tuple[float, ...] = Field(default=(0.1, 0.3, 0.5, 0.7, 0.9), min_length=1)
    """What a line may say, each as often as the others."""
    share: float = Field(default=1.0, gt=0.0, le=1.0)
    """Probability that a solution is rated at all, right or wrong."""

    def solves(self, generator: str) -> bool:
        """Look for a program; see `Teacher.solves`."""
        return self._programs().solves(generator)

    def solve(self, problems: "Sequence[Problem]", request: TeacherRequest) -> Iterator[Solution]:
        """Write solutions with ratings under them; see `Teacher.solve`."""
        drawn = random.Random(stable_seed(request.seed, "ratings"))
        # Draws of their own: which numbers are stated does not hang on how many are.
        rated = random.Random(stable_seed(request.seed, "rated"))
        for solution in self._programs().solve(problems, request):
            lines = [f"{name}: {drawn.choice(self.values):g}" for name in self.ratings]
            text = "\n".join((solution.text, *lines))
            yield replace(solution, text=text) if rated.random() < self.share else solution

    def _programs(self) -> ProgramTeacher:
        return ProgramTeacher(error_rate=self.error_rate)
