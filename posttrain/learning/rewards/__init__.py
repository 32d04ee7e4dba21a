"""Verifiers: functions of (text, problem) that say how good an answer is, and why.

A problem names its verifier; `verify` looks it up. Every verifier reads the answer behind the last
`####` of the text, GSM8K's own marker, so the model may reason freely before it. All are pure but
the judge, which reads the whole text and asks a model; what that said once, it says again.
"""

from collections.abc import Callable, Sequence

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.exact import verify_exact
from posttrain.learning.rewards.format import verify_format
from posttrain.learning.rewards.judge import judge_all, verify_judge
from posttrain.learning.rewards.numeric import verify_numeric
from posttrain.learning.rewards.reasoning_gym import verify_reasoning_gym
from posttrain.learning.rewards.verdict import Verdict, final_answer
from posttrain.stage.errors import UserError, nearest

__all__ = ["VERIFIERS", "Verdict", "final_answer", "verify", "verify_all"]

Verifier = Callable[[str, Problem], Verdict]

VERIFIERS: dict[str, Verifier] = {
    "exact": verify_exact,
    "numeric": verify_numeric,
    "reasoning_gym": verify_reasoning_gym,
    "format": verify_format,
    "judge": verify_judge,
}


def verify(text: str, problem: Problem) -> Verdict:
    """Judge `text` by the verifier that `problem` names."""
    verifier = VERIFIERS.get(problem.verifier)
    if verifier is None:
        raise UserError(
            f"problem {problem.id} names the verifier '{problem.verifier}', which is not one of "
            f"{', '.join(VERIFIERS)}{nearest(problem.verifier, VERIFIERS)}"
        )
    return verifier(text, problem)


def verify_all(answers: Sequence[tuple[str, Problem]]) -> list[Verdict]:
    """As `verify`, one verdict for each (text, problem); judges are asked many at once."""
    judged = [place for place, (_, problem) in enumerate(answers) if problem.verifier == "judge"]
    verdicts = dict(zip(judged, judge_all([answers[place] for place in judged]), strict=True))
    return [
        verdicts[place] if place in verdicts else verify(text, problem)
        for place, (text, problem) in enumerate(answers)
    ]
