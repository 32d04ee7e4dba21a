"""Judge answers to the problems of the reasoning-gym library by the library's own scorers."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verdict import CORRECT, NO_ANSWER, Verdict, final_answer
from posttrain.stage.errors import UserError, nearest

# These scorers hand the answer to Python's eval, some of them inside sympy. An answer is written
# by a model, so it is refused; of the two below, only arithmetic ever gets that far.
_EVALUATE_THE_ANSWER = frozenset(
    {
        "binary_matrix",
        "codeio",
        "intermediate_integration",
        "n_queens",
        "polynomial_multiplication",
        "simple_integration",
        "spiral_matrix",
        "string_insertion",
    }
)
_ARITHMETIC_ONLY = frozenset({"countdown", "puzzle24"})
_ARITHMETIC = re.compile(r"(?!.*\*\s*\*)[0-9+\-*/(). ]{1,200}")

NOT_ARITHMETIC = Verdict(0.0, "not_arithmetic")


def verify_reasoning_gym(text: str, problem: Problem) -> Verdict:
    """Score the final answer as the library does: 1 is correct, some generators grade in between.

    The generator is `source_dataset` of the problem's metadata, else its source. Further code:
    "not_arithmetic" (countdown and puzzle24 take an expression, and this is none).
    """
    answer = final_answer(text)
    if answer is None:
        return NO_ANSWER
    metadata = json.loads(problem.metadata)
    generator = metadata.get("source_dataset", problem.source)
    if generator in _ARITHMETIC_ONLY and not _ARITHMETIC.fullmatch(answer):
        return NOT_ARITHMETIC
    entry = {"question": problem.prompt, "answer": problem.answer, "metadata": metadata}
    score = float(_scorer(generator)(answer, entry))
    return CORRECT if score >= 1.0 else Verdict(max(score, 0.0), "wrong_answer")


@cache
def _scorer(generator: str) -> Callable[[str, Mapping[str, Any]], float]:
    """The library's scoring function of one generator."""
    if generator in _EVALUATE_THE_ANSWER:
        raise UserError(
            f"reasoning-gym scores '{generator}' by running the answer as code, which is unsafe "
            "for what a model wrote; use the verifier 'exact' for them, or another generator"
        )
    from reasoning_gym.factory import DATASETS, get_score_answer_fn

    if generator not in DATASETS:
        raise UserError(
            f"reasoning-gym has no generator '{generator}'{nearest(generator, DATASETS)}"
        )
    scorer: Callable[[str, Mapping[str, Any]], float] = get_score_answer_fn(generator)
    return scorer
