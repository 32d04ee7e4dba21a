"""One question that is posed over and over, under other numbers, and solved each time by chance."""

from typing import TYPE_CHECKING, Self

from pydantic import model_validator

from posttrain.data.sources.base import Source, SourceRequest, SourceRows

if TYPE_CHECKING:
    from pathlib import Path

    from posttrain.data.schemas import Problem
    from posttrain.data.teachers.base import Solution, Teacher

_PLACE = "{number}"


class NumberedSource(Source):
    """Poses its prompt under the numbers from 0 on; a kind says what a problem and a solution are.

    Derive from it, give `prompt` a default, and define `posed` and `solved`.
    """

    prompt: str
    """What is asked; {number} tells problems apart, and says nothing."""

    @model_validator(mode="after")
    def _tells_problems_apart(self) -> Self:
        if _PLACE not in self.prompt:
            raise ValueError("prompt needs {number}, or all problems would be one")
        return self

    def posed(self, prompt: str) -> "Problem":
        """Make the problem of a prompt.

        Args:
            prompt: With its number.

        Returns:
            The problem.

        """
        raise NotImplementedError

    def solved(self, problem: "Problem", seed: int) -> "Solution":
        """Draw a solution of a problem.

        Args:
            problem: One to train on.
            seed: Decides the draw, with the problem's name.

        Returns:
            The solution.

        """
        raise NotImplementedError

    def without_solutions(self, teacher: "Teacher", path: "Path | None") -> str:  # noqa: ARG002
        """Say that it has solutions; see `TellsSolutions`."""
        return ""

    def read(self, request: SourceRequest) -> SourceRows:
        """Pose problems by their numbers, held-out ones first; see `Source.read`."""
        prompts = (
            self.prompt.replace(_PLACE, str(number))
            for number in range(request.num_heldout + request.num_problems)
        )
        made = [self.posed(each) for each in prompts if each not in request.sides]
        train, heldout = made[request.num_heldout :], made[: request.num_heldout]
        return SourceRows(train, heldout, [self.solved(each, request.seed) for each in train])
