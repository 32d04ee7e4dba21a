"""A text has the right form if it ends with one answer line, whatever the answer says."""

from typing import TYPE_CHECKING, ClassVar, Literal

from posttrain.learning.rewards.score import CORRECT, MARKER, NO_ANSWER, Score, final_answer
from posttrain.learning.rewards.verifiers.base import Verifier

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

SEVERAL_ANSWERS = Score(0.0, "several_answers")
TEXT_AFTER_ANSWER = Score(0.0, "text_after_answer")


class FormatVerifier(Verifier):
    """Accept a text whose last line, and no other, is `#### ` and an answer.

    Further codes: "several_answers", "text_after_answer".

    Source: own, for teachers whose solutions end as GSM8K's do (arXiv 2110.14168).
    """

    REFERENCE: ClassVar[bool] = False

    kind: Literal["format"] = "format"

    def score(self, text: str, problem: "Problem") -> Score:  # noqa: ARG002 - the form alone counts
        """Look at the lines that start with the marker; see `Verifier.score`."""
        if final_answer(text) is None:
            return NO_ANSWER
        lines = [line.strip() for line in text.strip().splitlines()]
        if sum(line.startswith(MARKER) for line in lines) > 1:
            return SEVERAL_ANSWERS
        return CORRECT if lines[-1].startswith(MARKER) else TEXT_AFTER_ANSWER
