"""An answer is right if it is the reference, letter by letter; only white space is free."""

from typing import TYPE_CHECKING, Literal

from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class ExactVerifier(ComparingVerifier):
    """Accept the final answer that is the reference word by word; upper and lower case differ.

    Source: own, equality of strings.
    """

    kind: Literal["exact"] = "exact"

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Compare word by word; see `ComparingVerifier.compare`."""
        same = answer.split() == self.expected(problem).split()
        return CORRECT if same else WRONG_ANSWER
