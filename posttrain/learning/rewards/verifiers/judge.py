"""A model behind an endpoint grades the answer: for problems that no program can check."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from posttrain.backends.endpoint.config import Endpoint, filled
from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER, Score, reference_answer
from posttrain.learning.rewards.verifiers.base import Verifier
from posttrain.stage.needs import ENDPOINT

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

NO_GRADE = Score(None, "no_grade")
"""Of a reply without a grade in it: the answer could not be judged."""

_TEMPLATE = """\
You grade one answer to a question. Be strict: an answer is right only if its final result is.

Question:
{prompt}

Reference answer:
{answer}

Answer to grade:
{completion}

Say in one sentence what is right or wrong. Then write a last line `Score: N`, where N is a whole \
number from 0 (wrong) to 10 (right and well explained)."""


class JudgeVerifier(Verifier):
    """Let a model behind an endpoint grade the whole text; one answer is graded once in a project.

    Further code: "no_grade" (the reply has no grade in it, so the answer is not judged).

    Source: a model as judge, arXiv 2306.05685; the prompt is own.
    """

    NEEDS: ClassVar[frozenset[str]] = frozenset({ENDPOINT})

    kind: Literal["judge"] = "judge"
    endpoint: Endpoint
    """Where the model answers."""
    template: str = _TEMPLATE
    """The rubric; {prompt}, {answer} (the reference) and {completion} are filled in."""
    pattern: str = r"Score:\s*(-?\d+(?:\.\d+)?)"
    """Regular expression whose one group is the grade; its last match in the reply counts."""
    worst: float = 0.0
    """Grade that scores 0."""
    accept: float = 10.0
    """Grade from which an answer counts as correct and scores 1; linear in between."""
    temperature: float = Field(0.0, ge=0.0)
    """Sampling temperature of the judge."""
    max_tokens: int = Field(512, ge=1)
    """Longest reply, in tokens."""

    @model_validator(mode="after")
    def _can_grade(self) -> Self:
        if "{completion}" not in self.template:
            raise ValueError("the template must contain {completion}, the text to grade")
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"the pattern is no regular expression: {error}") from None
        if groups != 1:
            raise ValueError(f"the pattern must have one group, the grade, but has {groups}")
        if self.accept <= self.worst:
            raise ValueError("accept must be above worst")
        return self

    @classmethod
    def label(cls, parameters: Mapping[str, Any]) -> str:
        """Return the model's name."""
        return str(dict(parameters.get("endpoint") or {}).get("model", ""))

    def verify(self, texts: Sequence[str], problems: Sequence["Problem"]) -> list[Score]:
        """Ask about as many answers at once as the endpoint allows; see `Verifier.verify`."""
        from posttrain.backends.endpoint.chat import Question, reply_to
        from posttrain.backends.endpoint.client import open_client

        questions = [
            Question(
                text=filled(
                    self.template,
                    prompt=problem.prompt,
                    answer=reference_answer(problem.answer),
                    completion=text,
                ),
                temperature=self.temperature,
                max_tokens=self.max_tokens,
            )
            for text, problem in zip(texts, problems, strict=True)
        ]
        return [self.grade(reply) for reply in reply_to(open_client(self.endpoint), questions)]

    def grade(self, reply: str) -> Score:
        """Turn the last grade in a reply into a score: linear from `worst` to `accept`, cut."""
        found = re.findall(self.pattern, reply)
        if not found:
            return NO_GRADE
        try:
            score = (float(found[-1]) - self.worst) / (self.accept - self.worst)
        except ValueError:
            return NO_GRADE
        return CORRECT if score >= 1.0 else Score(max(score, 0.0), WRONG_ANSWER.reason)
