"""Questions with their answers, and perhaps worked solutions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from posttrain.data.formats.base import RawRow, RowFormat
from posttrain.data.formats.forms import AnsweredQuestion, Form


class QuestionAnswerFormat(RowFormat):
    """Read a question and its answer; where there is a solution, that is what SFT learns."""

    SOURCE = "Cobbe et al. 2021 (GSM8K); Hendrycks et al. 2021 (MATH)"
    FORM = AnsweredQuestion
    NAMES: ClassVar[Mapping[str, Sequence[str]]] = {
        "question": ("question", "problem", "prompt"),
        "answer": ("answer", "final_answer"),
        "solution": ("solution",),
    }
    NEEDED = frozenset({"question", "answer"})

    kind: Literal["question_answer"] = "question_answer"

    def convert(self, record: RawRow, where: str) -> Iterator[Form]:
        """Read the question, the answer and the solution."""
        yield AnsweredQuestion(
            *(self.text(record, name, where) for name in ("question", "answer", "solution"))
        )
