"""A model behind an endpoint as the teacher; every solution of it is verified like any other."""

from collections.abc import Callable, Sequence

from posttrain.backends.endpoint.chat import Question, reply_to
from posttrain.backends.endpoint.client import open_client
from posttrain.backends.endpoint.config import filled
from posttrain.data.schemas import Completion, Problem
from posttrain.learning.rewards.verify import verify_all
from tasks.synthesize.config import ServerTeacher

_SEED_BITS = 31


def ask_teacher(
    teacher: ServerTeacher,
    problems: Sequence[Problem],
    *,
    per_problem: int,
    seed: int,
    report: Callable[[int], None],
) -> list[Completion]:
    """`per_problem` solutions of every problem, problem by problem, with the verifier's score."""
    owners = [(problem, draw) for problem in problems for draw in range(per_problem)]
    questions = [
        Question(
            text=filled(teacher.template, prompt=problem.prompt),
            system=teacher.system,
            temperature=teacher.temperature,
            max_tokens=teacher.max_tokens,
            seed=(int(problem.id, 16) + seed * per_problem + draw) % 2**_SEED_BITS,
            draw=draw,
        )
        for problem, draw in owners
    ]
    texts = [
        text.strip() for text in reply_to(open_client(teacher.endpoint), questions, report=report)
    ]
    scores = verify_all([(text, owner[0]) for text, owner in zip(texts, owners, strict=True)])
    return [
        Completion(
            problem,
            text,
            f"server:{teacher.endpoint.model}",
            score.value,
            score.correct,
            score.reason,
        )
        for (problem, _), text, score in zip(owners, texts, scores, strict=True)
    ]
