"""An answer is right if a regular expression matches it."""

import re
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import field_validator

from posttrain.learning.rewards.extractors.base import Extractor
from posttrain.learning.rewards.extractors.registry import EXTRACTORS
from posttrain.learning.rewards.extractors.whole import WholeAnswer
from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier
from posttrain.stage.errors import UserError
from posttrain.stage.slots import InSlot

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem


class RegexVerifier(ComparingVerifier):
    """Accept an answer in which a regular expression of Python finds a match.

    Source: own; the expressions of Python's `re`.
    """

    REFERENCE: ClassVar[bool] = False

    kind: Literal["regex"] = "regex"
    answer: Annotated[Extractor, InSlot(EXTRACTORS)] = WholeAnswer()
    """Where the answer stands."""
    pattern: str | None = None
    """What is looked for: `^` and `$` around it ask for the whole answer; null if rows say it."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"this is no regular expression: {error}") from None
        return pattern

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Search the answer; see `ComparingVerifier.compare`."""
        if self.pattern is None:
            raise UserError(
                f"problem {problem.id} of '{problem.source}' is checked by the verifier 'regex',"
                " and neither its source nor its row has a pattern; set one of them"
            )
        return CORRECT if re.search(self.pattern, answer) else WRONG_ANSWER
