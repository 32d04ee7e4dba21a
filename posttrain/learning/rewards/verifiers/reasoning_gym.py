"""Score answers to the problems of the reasoning-gym library by the library's own scorers."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from posttrain.data.gym_generators import SANDBOXED
from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

# These evaluate the answer too, but of what a model wrote only arithmetic gets that far.
_ARITHMETIC_ONLY = frozenset({"countdown", "puzzle24"})
_ARITHMETIC = re.compile(r"(?!.*\*\s*\*)[0-9+\-*/(). ]{1,200}")

# Their scorers compare with a grid of tuples, which JSON does not have.
_GRIDS = frozenset({"arc_agi", "rearc"})

NOT_ARITHMETIC = Score(0.0, "not_arithmetic")


class GymVerifier(ComparingVerifier):
    """Score the final answer as reasoning-gym does: 1 is correct, some generators grade in between.

    The generator is `source_dataset` of the problem's metadata, else its source. Further code:
    "not_arithmetic" (countdown and puzzle24 take an expression, and this is none).
    """

    SOURCE = "reasoning-gym, score_answer of each generator"

    kind: Literal["reasoning_gym"] = "reasoning_gym"

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Ask the library's scorer of the problem's generator; see `ComparingVerifier.compare`."""
        metadata = json.loads(problem.metadata)
        generator = metadata.get("source_dataset", problem.source)
        if generator in _ARITHMETIC_ONLY and not _ARITHMETIC.fullmatch(answer):
            return NOT_ARITHMETIC
        if generator in _GRIDS:
            metadata["output"] = tuple(map(tuple, metadata["output"]))
        entry = {"question": problem.prompt, "answer": problem.answer, "metadata": metadata}
        score = float(_scorer(generator)(answer, entry))
        return CORRECT if score >= 1.0 else Score(max(score, 0.0), WRONG_ANSWER.reason)


@cache
def _scorer(generator: str) -> Callable[[str, Mapping[str, Any]], float]:
    """Return the library's scoring function of one generator."""
    if generator in SANDBOXED:
        raise UserError(
            f"reasoning-gym scores '{generator}' by running the answer as code, which is unsafe "
            "for what a model wrote; use the verifier 'reasoning_gym_sandboxed' for it"
        )
    from reasoning_gym.factory import DATASETS, get_score_answer_fn

    if generator not in DATASETS:
        raise UserError(
            f"reasoning-gym has no generator '{generator}'{nearest(generator, DATASETS)}"
        )
    scorer: Callable[[str, Mapping[str, Any]], float] = get_score_answer_fn(generator)
    return scorer
