"""What a teacher is: a part that writes worked solutions, which a verifier then decides about."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from posttrain.stage.slots import Part

if TYPE_CHECKING:
    from posttrain.data.contexts import Turn
    from posttrain.data.schemas import Problem


@dataclass(frozen=True)
class Solution:
    """A worked solution before its verdict; `generator` says who wrote it."""

    problem: "Problem"
    text: str
    generator: str
    weight: float = 1.0
    """How much it counts in training."""
    between: "tuple[Turn, ...]" = ()
    """What was said between the prompt and the text, where there were several turns."""
    read: tuple[str, ...] = ()
    """Ids of the rows that were shown before the text, such as passages."""
    score: float | None = None
    """What it earned where it was played out, 1 if solved; None where a verifier is asked."""


@dataclass(frozen=True)
class TeacherRequest:
    """What a stage asks a teacher for.

    Attributes:
        per_problem: Solutions of every problem.
        seed: Seed of the stage.
        report: Hears how many solutions are written.

    """

    per_problem: int
    seed: int
    report: Callable[[int], None]


class Teacher(Part):
    """Writes worked solutions of problems."""

    FOR_FILES: ClassVar[bool] = True
    """Whether it may solve problems that somebody brought in a file."""

    def solves(self, generator: str) -> bool:
        """Say whether the problems of a generator get solutions, before any is made.

        Args:
            generator: Name in the reasoning-gym library.

        Returns:
            False where they get none, so that RL alone learns them; the plan says so.

        """
        return True

    def solve(self, problems: "Sequence[Problem]", request: TeacherRequest) -> Iterator[Solution]:
        """Write solutions, problem by problem.

        Args:
            problems: Problems without a solution; what the teacher cannot solve is left out.
            request: How many, and the seed.

        Yields:
            `request.per_problem` solutions of each problem, right or wrong.

        """
        raise NotImplementedError
