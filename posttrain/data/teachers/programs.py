"""Programs that write worked solutions, and that err as often as they are set to.

A solution is one line per step and a last line `#### answer`. A wrong step is off by up to three,
and everything after it builds on the wrong value, as it would for a model.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.data.gym_generators import STATES_NO_ANSWER
from posttrain.data.teachers.base import Solution, Teacher, TeacherRequest
from posttrain.data.teachers.countdown import solve_countdown
from posttrain.data.teachers.notes import Metadata, Notes
from posttrain.data.teachers.worked_solutions import (
    solve_base_conversion,
    solve_count_bits,
    solve_expression,
    solve_gcd,
    solve_legs,
    solve_number_sorting,
    solve_word_sorting,
)
from posttrain.stage.seeds import stable_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_GENERATOR = "source_dataset"
"""Key of a generated problem's metadata, whose value is the generator's name."""

PROGRAMS: Mapping[str, Callable[[Metadata, Notes], str]] = {
    "base_conversion": solve_base_conversion,
    "basic_arithmetic": solve_expression,
    "chain_sum": solve_expression,
    "countdown": solve_countdown,
    "count_bits": solve_count_bits,
    "gcd": solve_gcd,
    "leg_counting": solve_legs,
    "number_sorting": solve_number_sorting,
    "word_sorting": solve_word_sorting,
}
"""Generator -> a function that works one problem out in notes and returns the answer."""

WORKED: Mapping[str, str] = {"gsm_symbolic": "answer_cot"}
"""Generator -> the metadata that holds its own worked solution, with the answer at its end."""


class ProgramTeacher(Teacher):
    """Solves generated problems by a program each, with an error now and then.

    A generator without a program gives its own solutions, where it has them: these do not err.

    Source: own programs for generated problems.
    """

    FOR_FILES = False

    kind: Literal["programs"] = "programs"
    error_rate: float = Field(default=0.2, ge=0.0, le=1.0)
    """Probability that a step is wrong; the steps after it build on the error."""

    without_program: Literal["skip", "answer"] = "skip"
    """What is written where no program solves a generator, and it has no solution of its own:
    nothing, so that RL alone learns it, or its bare answer, as many models answer at first."""

    def solves(self, generator: str) -> bool:
        """Look for a program, or a solution that comes along; see `Teacher.solves`."""
        if generator in PROGRAMS or generator in WORKED:
            return True
        return self.without_program == "answer" and generator not in STATES_NO_ANSWER

    def solve(self, problems: "Sequence[Problem]", request: TeacherRequest) -> Iterator[Solution]:
        """Write solutions of the generated problems among `problems`; see `Teacher.solve`."""
        for problem in problems:
            metadata = json.loads(problem.metadata)
            # A source of files may bear a generator's name.
            if metadata.get(_GENERATOR) != problem.source or not self.solves(problem.source):
                continue
            if problem.source not in PROGRAMS:
                yield from _as_it_comes(problem, metadata)
                continue
            errors = random.Random(stable_seed(request.seed, "teacher", problem.id))
            for _ in range(request.per_problem):
                notes = Notes(errors, self.error_rate)
                try:
                    text = notes.text(PROGRAMS[problem.source](metadata, notes))
                except (ValueError, ZeroDivisionError):
                    # Written in a way that the program cannot read, or divided by a slip's zero.
                    continue
                yield Solution(problem, text, f"teacher:{self.error_rate:g}")


def _as_it_comes(problem: "Problem", metadata: Metadata) -> Iterator[Solution]:
    """The generator's own solution, or its bare answer: one, as a second would be the same."""
    if problem.source in WORKED:
        yield Solution(problem, metadata[WORKED[problem.source]], "generator")
    else:
        yield Solution(problem, f"#### {problem.answer}", "generator:answer")
