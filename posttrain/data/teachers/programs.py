"""Programs that write worked solutions, and that err as often as they are set to.

A solution is one line per step and a last line `#### answer`. A wrong step is off by up to three,
and everything after it builds on the wrong value, as it would for a model.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from posttrain.data.teachers.base import Solution, Teacher, TeacherRequest
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import stable_seed

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


Metadata = Mapping[str, Any]

_SLIPS = (-3, -2, -1, 1, 2, 3)
_OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}

_GENERATOR = "source_dataset"
"""Key of a generated problem's metadata, whose value is the generator's name."""


@dataclass
class Notes:
    """Lines of one worked solution. `errors` draws the slips; equal draws, equal solutions."""

    errors: random.Random
    error_rate: float
    lines: list[str] = field(default_factory=list)

    def value(self, true_value: int) -> int:
        """What the teacher takes `true_value` for."""
        if self.errors.random() < self.error_rate:
            return true_value + self.errors.choice(_SLIPS)
        return true_value

    def choice(self, right: int, others: Sequence[int]) -> int:
        """`right`, or by mistake any of `others`."""
        return self.errors.choice(others) if self.errors.random() < self.error_rate else right

    def calculate(self, left: int, operator: str, right: int) -> int:
        """Write `left operator right = result` and go on with the result, right or wrong."""
        result = self.value(_OPERATIONS[operator](left, right))
        self.lines.append(f"{left} {operator} {right} = {result}")
        return result

    def text(self, answer: str) -> str:
        """The whole solution."""
        return "\n".join([*self.lines, f"#### {answer}"])


def solve_sorting(metadata: Metadata, notes: Notes) -> str:
    """Write the sorted list; a slip picks any number that is left."""
    left = [int(float(number)) for number in metadata["original_numbers"]]
    best = min if metadata["direction"] == "ascending" else max
    picked = []
    while left:
        number = notes.choice(best(left), left)
        left.remove(number)
        picked.append(number)
    return f"[{', '.join(map(str, picked))}]"


def solve_legs(metadata: Metadata, notes: Notes) -> str:
    """Multiply, then add, one line each."""
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    total: int | None = None
    for animal, count in metadata["animals"].items():
        legs = notes.value(count * ANIMALS[animal])
        notes.lines.append(f"{count} {animal} = {legs}")
        total = legs if total is None else notes.calculate(total, "+", legs)
    return str(total)


def solve_expression(metadata: Metadata, notes: Notes) -> str:
    """Evaluate the problem's expression, one line per operation."""
    value, rest = _sum(metadata["expression"].split(), notes)
    if rest:
        raise ValueError(f"cannot read '{metadata['expression']}' beyond '{' '.join(rest)}'")
    return str(value)


def _sum(tokens: list[str], notes: Notes) -> tuple[int, list[str]]:
    """The value of `tokens` up to a closing parenthesis, and the tokens from there on."""
    value, tokens = _term(tokens, notes)
    while tokens and tokens[0] in ("+", "-"):
        operator, tokens = tokens[0], tokens[1:]
        right, tokens = _term(tokens, notes)
        value = notes.calculate(value, operator, right)
    return value, tokens


def _term(tokens: list[str], notes: Notes) -> tuple[int, list[str]]:
    if tokens[0] != "(":
        return int(tokens[0]), tokens[1:]
    value, tokens = _sum(tokens[1:], notes)
    return value, tokens[1:]


# Generator -> a function that works one problem out in `notes` and returns the answer.
PROGRAMS: Mapping[str, Callable[[Metadata, Notes], str]] = {
    "chain_sum": solve_expression,
    "basic_arithmetic": solve_expression,
    "leg_counting": solve_legs,
    "number_sorting": solve_sorting,
}


class ProgramTeacher(Teacher):
    """Solves generated problems by a program each, with an error now and then."""

    kind: Literal["programs"] = "programs"
    error_rate: float = Field(default=0.2, ge=0.0, le=1.0)
    """Probability that a step is wrong; the steps after it build on the error."""

    def check_generator(self, name: str) -> None:
        """Refuse a generator that no program solves."""
        if name not in PROGRAMS:
            raise UserError(
                f"synthesize.sources: no teacher solves '{name}' (there are "
                f"{', '.join(PROGRAMS)}); write one in posttrain/data/teachers, use one of these,"
                " or give synthesize.teacher a model"
            )

    def solve(self, problems: "Sequence[Problem]", request: TeacherRequest) -> Iterator[Solution]:
        """Write solutions of the generated problems among `problems`; see `Teacher.solve`."""
        for problem in problems:
            metadata = json.loads(problem.metadata)
            # A source of files may bear a generator's name.
            if metadata.get(_GENERATOR) != problem.source or problem.source not in PROGRAMS:
                continue
            errors = random.Random(stable_seed(request.seed, "teacher", problem.id))
            for _ in range(request.per_problem):
                notes = Notes(errors, self.error_rate)
                text = notes.text(PROGRAMS[problem.source](metadata, notes))
                yield Solution(problem, text, f"teacher:{self.error_rate:g}")
