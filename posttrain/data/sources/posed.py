"""What sources share that pose problems by chance, and work them out with slips or without."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self

from pydantic import Field, model_validator

from posttrain.data.sources.base import Source, SourceRequest, SourceRows
from posttrain.data.teachers.base import Solution, Teacher
from posttrain.data.teachers.notes import Notes
from posttrain.stage.errors import UserError
from posttrain.stage.seeds import stable_seed
from posttrain.stage.slots import InSlot, Part

if TYPE_CHECKING:
    from pathlib import Path

    from posttrain.data.schemas import Problem

_DRAWS = 30
"""Draws for each problem that is asked for: a level that has too few by then is refused."""


class PosedProblem(NamedTuple):
    """One problem, before it is a row."""

    prompt: str
    answer: str
    work: Callable[[Notes], str]
    """Writes the lines of a solution, and gives the answer that they lead to, right or wrong."""


class PosedSource(Source):
    """Poses problems at levels of difficulty, and gives worked solutions."""

    levels: tuple[int, ...] = Field(default=(1, 2, 3), min_length=1)
    """Difficulties, from which as many problems each are made."""
    solutions: int = Field(default=3, ge=0)
    """Worked solutions of each problem to train on."""
    verifier: Annotated[Part, InSlot("verifier")] = Field(default="exact", validate_default=True)
    """What scores an answer."""

    @model_validator(mode="after")
    def _has_levels_that_it_knows(self) -> Self:
        if wrong := [each for each in self.levels if each < 1]:
            raise ValueError(f"level {wrong[0]} is below 1, the easiest; leave it out")
        return self

    @abstractmethod
    def posed(self, level: int, draw: Random) -> PosedProblem:
        """Make one problem.

        Args:
            level: Of difficulty, 1 or more.
            draw: What chance decides.

        Returns:
            What is asked, its answer, and how it is worked out.

        """
        raise NotImplementedError

    @property
    def slips(self) -> float:
        """Probability that a step of a solution is wrong."""
        return 0.0

    def without_solutions(self, teacher: Teacher, path: "Path | None") -> str:  # noqa: ARG002
        """Say that it has solutions; see `TellsSolutions`."""
        return "" if self.solutions else f"set solutions of {self.name} above 0"

    def read(self, request: SourceRequest) -> SourceRows:
        """Pose problems level by level, held-out ones first; see `Source.read`."""
        draw, rows, seen = Random(stable_seed(request.seed, self.name)), SourceRows(), set[str]()
        seen |= request.sides.keys()
        for number, level in enumerate(self.levels):
            heldout = _share(request.num_heldout, number, len(self.levels))
            wanted = heldout + _share(request.num_problems, number, len(self.levels))
            made: list[tuple[Problem, PosedProblem]] = []
            for _ in range(_DRAWS * wanted):
                if len(made) == wanted:
                    break
                each = self.posed(level, draw)
                if each.prompt not in seen:
                    seen.add(each.prompt)
                    made.append((self._row(each, level), each))
            if len(made) < wanted:
                raise UserError(
                    f"synthesize.sources: {self.name} has {len(made)} different problems at level"
                    f" {level}, and {wanted} are asked for; add harder levels, or set num_problems"
                    " or num_heldout lower"
                )
            rows.heldout.extend(problem for problem, _ in made[:heldout])
            for problem, each in made[heldout:]:
                rows.train.append(problem)
                rows.solutions.extend(self._worked(problem, each, request.seed))
        return rows

    def _row(self, each: PosedProblem, level: int) -> "Problem":
        from posttrain.data.schemas import Problem

        return Problem(self.name, each.prompt, each.answer, level, "")

    def _worked(self, problem: "Problem", each: PosedProblem, seed: int) -> Sequence[Solution]:
        errors = Random(stable_seed(seed, "worked", problem.id))
        found = []
        for _ in range(self.solutions):
            notes = Notes(errors, self.slips)
            text = notes.text(each.work(notes))
            found.append(Solution(problem, text, f"{self.kind}:{self.slips:g}"))
        return found


class SlippingSource(PosedSource):
    """Poses problems whose solutions have steps, and err in them now and then."""

    error_rate: float = Field(default=0.2, ge=0.0, le=1.0)
    """Probability that a step of a solution is wrong; the steps after it build on the error."""

    @property
    def slips(self) -> float:
        """Probability that a step of a solution is wrong."""
        return self.error_rate


def _share(total: int, number: int, parts: int) -> int:
    """Divide a total into parts that differ by 1 at most.

    >>> [_share(8, number, 3) for number in range(3)]
    [3, 3, 2]

    """
    return total // parts + (number < total % parts)
