"""A text has the right form if it ends with one answer line, whatever the answer says."""

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verdict import CORRECT, MARKER, NO_ANSWER, Verdict, final_answer

SEVERAL_ANSWERS = Verdict(0.0, "several_answers")
TEXT_AFTER_ANSWER = Verdict(0.0, "text_after_answer")


def verify_format(text: str, _problem: Problem) -> Verdict:
    """Accept a text whose last line, and no other, is `#### ` and an answer.

    Further codes: "several_answers", "text_after_answer".
    """
    if final_answer(text) is None:
        return NO_ANSWER
    lines = [line.strip() for line in text.strip().splitlines()]
    if sum(line.startswith(MARKER) for line in lines) > 1:
        return SEVERAL_ANSWERS
    return CORRECT if lines[-1].startswith(MARKER) else TEXT_AFTER_ANSWER
