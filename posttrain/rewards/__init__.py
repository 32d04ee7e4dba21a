"""Verifiers: pure functions of (text, problem) that say how good an answer is, and why.

A problem names its verifier; `verify` looks it up. Every verifier reads the answer behind the last
`####` of the text, GSM8K's own marker, so the model may reason freely before it.
"""

from collections.abc import Callable

from posttrain.errors import UserError, nearest
from posttrain.records import Problem
from posttrain.rewards.exact import verify_exact
from posttrain.rewards.format import verify_format
from posttrain.rewards.numeric import verify_numeric
from posttrain.rewards.reasoning_gym import verify_reasoning_gym
from posttrain.rewards.verdict import Verdict, final_answer

__all__ = ["VERIFIERS", "Verdict", "final_answer", "verify"]

Verifier = Callable[[str, Problem], Verdict]

VERIFIERS: dict[str, Verifier] = {
    "exact": verify_exact,
    "numeric": verify_numeric,
    "reasoning_gym": verify_reasoning_gym,
    "format": verify_format,
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
