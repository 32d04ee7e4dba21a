"""Answers graded by a model behind an endpoint: for problems that no program can check."""

import json
import re
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from posttrain.backends.endpoint.chat import Question, reply_to
from posttrain.backends.endpoint.client import open_client
from posttrain.backends.endpoint.config import JudgeSettings, filled
from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verdict import CORRECT, WRONG_ANSWER, Verdict, reference_answer
from posttrain.stage.errors import UserError

SETTINGS = "judge"
"""Key of a problem's metadata that holds the judge's settings."""

NO_GRADE = Verdict(0.0, "no_grade")


def verify_judge(text: str, problem: Problem) -> Verdict:
    """Ask the judge that the problem's metadata names; one answer is judged once in a project.

    Further code: "no_grade" (the judge's reply has no grade in it).
    """
    return judge_all([(text, problem)])[0]


def judge_all(answers: Sequence[tuple[str, Problem]]) -> list[Verdict]:
    """Judge many answers, as many at once as each judge's endpoint allows; in their order."""
    by_judge: dict[str, list[int]] = {}
    for place, (_, problem) in enumerate(answers):
        by_judge.setdefault(_settings_text(problem), []).append(place)
    verdicts: dict[int, Verdict] = {}
    for text, places in by_judge.items():
        verdicts |= dict(zip(places, _judge(text, [answers[i] for i in places]), strict=True))
    return [verdicts[place] for place in range(len(answers))]


def grade(reply: str, judge: JudgeSettings) -> Verdict:
    """The last grade in a reply as a score: linear from `worst` to `accept`, cut to [0, 1]."""
    found = re.findall(judge.pattern, reply)
    if not found:
        return NO_GRADE
    try:
        score = (float(found[-1]) - judge.worst) / (judge.accept - judge.worst)
    except ValueError:
        return NO_GRADE
    return CORRECT if score >= 1.0 else Verdict(max(score, 0.0), WRONG_ANSWER.reason)


def _judge(settings: str, answers: Sequence[tuple[str, Problem]]) -> Iterator[Verdict]:
    judge = _parse(settings, answers[0][1])
    questions = [
        Question(
            text=filled(
                judge.template,
                prompt=problem.prompt,
                answer=reference_answer(problem.answer),
                completion=text,
            ),
            temperature=judge.temperature,
            max_tokens=judge.max_tokens,
        )
        for text, problem in answers
    ]
    for reply in reply_to(open_client(judge.endpoint), questions):
        yield grade(reply, judge)


def _settings_text(problem: Problem) -> str:
    settings = json.loads(problem.metadata).get(SETTINGS)
    if settings is None:
        raise UserError(
            f"problem {problem.id} of '{problem.source}' is checked by a judge, but its metadata"
            " names none; give its source a judge, or another verifier"
        )
    return json.dumps(settings, sort_keys=True)


def _parse(settings: str, problem: Problem) -> JudgeSettings:
    try:
        return JudgeSettings.model_validate_json(settings)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise UserError(
            f"problem {problem.id} of '{problem.source}' names a judge that is not valid:"
            f" {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"
        ) from None
