"""An answer is right if it is the reference, letter by letter; only white space is free."""

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verdict import (
    CORRECT,
    NO_ANSWER,
    WRONG_ANSWER,
    Verdict,
    final_answer,
    reference_answer,
)


def verify_exact(text: str, problem: Problem) -> Verdict:
    """Compare the final answer with the reference; upper and lower case differ."""
    answer = final_answer(text)
    if answer is None:
        return NO_ANSWER
    same = answer.split() == reference_answer(problem.answer).split()
    return CORRECT if same else WRONG_ANSWER
