"""An answer is right if it is the reference, letter by letter; only white space is free."""

from typing import TYPE_CHECKING, Literal

from posttrain.learning.rewards.score import (
    CORRECT,
    NO_ANSWER,
    WRONG_ANSWER,
    Score,
    final_answer,
    reference_answer,
)
from posttrain.learning.rewards.verifiers.base import Verifier

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class ExactVerifier(Verifier):
    """Accept the final answer that is the reference word by word; upper and lower case differ."""

    kind: Literal["exact"] = "exact"

    def score(self, text: str, problem: "Problem") -> Score:
        """Compare the final answer with the reference; see `Verifier.score`."""
        answer = final_answer(text)
        if answer is None:
            return NO_ANSWER
        same = answer.split() == reference_answer(problem.answer).split()
        return CORRECT if same else WRONG_ANSWER
