"""Answers of a finite game: how often each is preferred to each other one is given."""

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from posttrain.learning.rewards.score import CORRECT, Score
from posttrain.learning.rewards.verifiers.base import Verifier

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

NOT_AN_ANSWER = Score(0.0, "not_an_answer")


class DuelVerifier(Verifier):
    """Know how often each of some answers is preferred to each other one, in a cycle or not.

    Every answer is accepted; where one is `best` that alone is, and another one scores what it wins
    on average against the others. Codes: "correct", "not_best", "not_an_answer".

    Source: own; a table of preferences as in Nash learning from human feedback, arXiv 2312.00886.
    """

    REFERENCE = False

    kind: Literal["duel"] = "duel"
    answers: tuple[str, ...] = Field(default=("a", "b", "c"), min_length=2)
    """All answers that there are; a text is one of them, white space around it left out."""
    matrix: tuple[tuple[float, ...], ...] = ((0.5, 0.9, 0.1), (0.1, 0.5, 0.9), (0.9, 0.1, 0.5))
    """How often the answer of a row is preferred to that of a column; 0.5 on the diagonal."""
    best: str | None = None
    """The answer that counts as right; null where all do."""

    @model_validator(mode="after")
    def _is_a_game(self) -> Self:
        size = len(self.answers)
        if len(set(self.answers)) < size or any(not each.strip() for each in self.answers):
            raise ValueError("answers must differ, and none may be empty")
        if len(self.matrix) != size or any(len(row) != size for row in self.matrix):
            raise ValueError(f"matrix needs {size} rows of {size} numbers, one for each answer")
        for i, row in enumerate(self.matrix):
            for j, wins in enumerate(row):
                if not 0 <= wins <= 1 or abs(wins + self.matrix[j][i] - 1) > 1e-9:
                    raise ValueError(
                        f"matrix says that '{self.answers[i]}' is preferred to '{self.answers[j]}'"
                        f" {wins:g} of the time, and the other way round {self.matrix[j][i]:g};"
                        " the two must add up to 1"
                    )
        if self.best is not None and self.best not in self.answers:
            raise ValueError(f"best is '{self.best}', which is none of the answers")
        return self

    def place(self) -> str:
        """Say that all of a text counts; see `Verifier.place`."""
        return ""

    def stated(self, text: str) -> str | None:
        """Return the answer that a text is; see `Verifier.stated`."""
        return text.strip() if text.strip() in self.answers else None

    def score(self, text: str, problem: "Problem") -> Score:  # noqa: ARG002 - a game is one for all
        """Look the answer up; see `Verifier.score`."""
        answer = self.stated(text)
        if answer is None:
            return NOT_AN_ANSWER
        if self.best in (None, answer):
            return CORRECT
        return Score(min(self.average(answer), 0.999), "not_best")

    def average(self, text: str) -> float:
        """Return how often a text is preferred to the other answers, each as often as the others.

        Args:
            text: One of the answers; any other text always loses.

        """
        answer = self.stated(text)
        if answer is None:
            return 0.0
        row = self.matrix[self.answers.index(answer)]
        return (sum(row) - 0.5) / (len(row) - 1)

    def prefers(self, first: str, second: str) -> float:
        """Return how often one text is preferred to another; one that is no answer always loses.

        Args:
            first: A text.
            second: Another text.

        """
        one, other = self.stated(first), self.stated(second)
        if one is None or other is None:
            return 0.5 + 0.5 * (one is not None) - 0.5 * (other is not None)
        return self.matrix[self.answers.index(one)][self.answers.index(other)]
