"""An answer is right if it is the same expression as the reference, in LaTeX or not."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from posttrain.learning.rewards.extractors.base import Extractor
from posttrain.learning.rewards.extractors.boxed import BoxedAnswer
from posttrain.learning.rewards.extractors.registry import EXTRACTORS
from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_MAX_CHARS = 1000
"""A longer answer is no answer; a model may write anything."""

_SCORES = {
    "equal": CORRECT,
    "different": WRONG_ANSWER,
    "not_math": Score(0.0, "not_math"),
    "timed_out": Score(None, "timed_out"),
    "stopped": Score(None, "stopped"),
}


class MathVerifier(ComparingVerifier):
    r"""Compare LaTeX expressions by algebra, as math-verify does: 1/2 is \frac{2}{4}.

    Further codes: "not_math" (the answer is no expression, or one of more than 1,000 characters);
    "timed_out" and "stopped" (out of memory), where the answer could not be judged.
    """

    SOURCE = "math-verify 0.9, github.com/huggingface/Math-Verify"
    PACKAGES: ClassVar[frozenset[str]] = frozenset({"math-verify"})

    kind: Literal["math"] = "math"
    answer: Annotated[Extractor, InSlot(EXTRACTORS)] = BoxedAnswer()
    """Where the answer stands."""
    seconds: float = Field(default=10.0, gt=0.0)
    """Longest time of one comparison."""

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Ask math-verify; see `ComparingVerifier.compare`."""
        from posttrain.learning.rewards.verifiers.math_worker import the_worker

        if len(answer) > _MAX_CHARS:
            return _SCORES["not_math"]
        said = the_worker().compare(answer, self.expected(problem), seconds=self.seconds)
        if said == "not_math_reference":
            raise UserError(
                f"problem {problem.id} of '{problem.source}' is checked by the verifier 'math', but"
                f" its answer is {problem.answer[-40:]!r}, which is no expression; give it the"
                " verifier 'exact'"
            )
        return _SCORES[said]
