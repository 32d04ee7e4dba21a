"""Problems whose answers are a few, each preferred to each other one as a matrix says."""

from random import Random
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from posttrain.data.sources.numbered import NumberedSource
from posttrain.data.teachers.base import Solution
from posttrain.stage.seeds import stable_seed
from posttrain.stage.slots import InSlot, Part

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class AnswerGameSource(NumberedSource):
    """Poses one question over and over, under other numbers; its answers play a game of two.

    Which answer is preferred to which stands in the verifier `duel`, which may have a cycle: then
    no reward says it, and how far a policy can be beaten is computed, and not estimated.
    """

    SOURCE = "general preferences as a game of two: Nash learning from human feedback, 2312.00886"

    kind: Literal["answer_game"] = "answer_game"
    name: str = "answer_game"
    """Name of the source."""
    prompt: str = "pick {number}"
    """What is asked; {number} tells problems apart, and says nothing."""
    shares: tuple[float, ...] = ()
    """How often each answer stands in the solutions; equally often unless it is given."""
    verifier: Annotated[Part, InSlot("verifier")] = Field(default="duel", validate_default=True)
    """The answers, and how often each is preferred to each other one."""

    @model_validator(mode="after")
    def _fits_the_game(self) -> Self:
        answers = self._answers()
        if self.verifier.kind != "duel":
            raise ValueError(f"verifier is {self.verifier.kind}, but only duel knows the answers")
        if self.shares and len(self.shares) != len(answers):
            raise ValueError(f"there are {len(self.shares)} shares for {len(answers)} answers")
        if any(share < 0 for share in self.shares) or (self.shares and not sum(self.shares)):
            raise ValueError("shares must not be negative, and one of them must be above 0")
        return self

    def posed(self, prompt: str) -> "Problem":
        """Pose the game; see `NumberedSource.posed`."""
        from posttrain.data.schemas import Problem

        # What may be answered, as a person reads it: the verifier goes by its own.
        answer = getattr(self.verifier, "best", None) or " ".join(self._answers())
        return Problem(self.name, prompt, answer, difficulty=1, verifier="")

    def _answers(self) -> tuple[str, ...]:
        found: tuple[str, ...] = getattr(self.verifier, "answers", ())
        return found

    def solved(self, problem: "Problem", seed: int) -> Solution:
        """Draw an answer by its share; see `NumberedSource.solved`."""
        answers = self._answers()
        shares = self.shares or (1.0,) * len(answers)
        draw = Random(stable_seed(seed, self.name, problem.id))
        (text,) = draw.choices(answers, weights=shares)
        return Solution(problem, text, "answer_game")
