"""A model behind an endpoint as the teacher; every solution of it is verified like any other."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from posttrain.backends.endpoint.config import Endpoint, filled
from posttrain.data.teachers.base import Solution, Teacher, TeacherRequest

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_SEED_BITS = 31


class ServerTeacher(Teacher):
    """Asks a model behind an OpenAI-compatible endpoint.

    Each solution is kept in the project's request cache.

    Source: own client; OpenAI's chat completions.
    """

    kind: Literal["server"] = "server"
    endpoint: Endpoint
    """Where it answers."""
    template: str = (
        "{prompt}\n\nWork it out, one short line a step. End with a last line that is `#### ` and"
        " the answer, nothing else."
    )
    """What it is asked; {prompt} is the problem's."""
    system: str = ""
    """System message, if any."""
    temperature: float = Field(default=0.7, ge=0.0)
    """Its sampling temperature."""
    max_tokens: int = Field(default=512, ge=1)
    """Longest solution, in its tokens."""

    def solve(self, problems: "Sequence[Problem]", request: TeacherRequest) -> Iterator[Solution]:
        """Ask for all solutions at once; see `Teacher.solve`."""
        from posttrain.backends.endpoint.chat import Question, reply_to
        from posttrain.backends.endpoint.client import open_client

        count = request.per_problem
        owners = [(problem, draw) for problem in problems for draw in range(count)]
        questions = [
            Question(
                text=filled(self.template, prompt=problem.prompt),
                system=self.system,
                temperature=self.temperature,
                max_tokens=self.max_tokens,
                seed=(int(problem.id, 16) + request.seed * count + draw) % 2**_SEED_BITS,
                draw=draw,
            )
            for problem, draw in owners
        ]
        replies = reply_to(open_client(self.endpoint), questions, report=request.report)
        for (problem, _), text in zip(owners, replies, strict=True):
            yield Solution(problem, text.strip(), f"server:{self.endpoint.model}")
