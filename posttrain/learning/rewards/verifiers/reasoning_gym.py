"""Score answers to the problems of the reasoning-gym library by the library's own scorers."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from posttrain.learning.rewards.score import CORRECT, NO_ANSWER, WRONG_ANSWER, Score, final_answer
from posttrain.learning.rewards.verifiers.base import Verifier
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

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

NOT_ARITHMETIC = Score(0.0, "not_arithmetic")


class GymVerifier(Verifier):
    """Score the final answer as reasoning-gym does: 1 is correct, some generators grade in between.

    The generator is `source_dataset` of the problem's metadata, else its source. Further code:
    "not_arithmetic" (countdown and puzzle24 take an expression, and this is none).
    """

    SOURCE = "reasoning-gym, score_answer of each generator"

    kind: Literal["reasoning_gym"] = "reasoning_gym"

    def score(self, text: str, problem: "Problem") -> Score:
        """Ask the library's scorer of the problem's generator; see `Verifier.score`."""
        answer = final_answer(text)
        if answer is None:
            return NO_ANSWER
        metadata = json.loads(problem.metadata)
        generator = metadata.get("source_dataset", problem.source)
        if generator in _ARITHMETIC_ONLY and not _ARITHMETIC.fullmatch(answer):
            return NOT_ARITHMETIC
        entry = {"question": problem.prompt, "answer": problem.answer, "metadata": metadata}
        score = float(_scorer(generator)(answer, entry))
        return CORRECT if score >= 1.0 else Score(max(score, 0.0), WRONG_ANSWER.reason)


@cache
def _scorer(generator: str) -> Callable[[str, Mapping[str, Any]], float]:
    """Return the library's scoring function of one generator."""
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
