"""An answer is right if it is the same number as the reference, however it is written."""

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

NOT_A_NUMBER = Score(0.0, "not_a_number")

# A number from a model may be arbitrarily long; a longer one answers nothing.
_MAX_CHARS = 64
_NUMBER = re.compile(
    r"""
    (?P<sign>[-+]?) \s* \\?[$€£¥]? \s* (?P<inner_sign>[-+]?)
    (?P<whole>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)
    (?:\.(?P<decimals>[0-9]*))?
    (?:\s*/\s*(?P<divisor>[0-9]+))?
    \s* [%°]? \s* (?P<unit>[^\W\d_][^\d]*)? \.?
    """,
    re.VERBOSE,
)


class NumericVerifier(ComparingVerifier):
    """Compare the final answer with the reference as exact rational numbers.

    Thousands separators, a currency sign, a percent sign, a unit behind the number, a plus sign
    and trailing zeros do not count. Further code: "not_a_number".

    Source: own.
    """

    kind: Literal["numeric"] = "numeric"

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Compare the numbers; see `ComparingVerifier.compare`."""
        value = parse_number(answer)
        if value is None:
            return NOT_A_NUMBER
        return CORRECT if value == _number(self.expected(problem), problem) else WRONG_ANSWER


def parse_number(text: str) -> Fraction | None:
    """Read one number, or return None where the text is not exactly one.

    >>> parse_number("$1,234.50"), parse_number("18 eggs"), parse_number("3/4")
    (Fraction(2469, 2), Fraction(18, 1), Fraction(3, 4))
    >>> parse_number("4 + 5"), parse_number("1,2"), parse_number("-")
    (None, None, None)

    Args:
        text: A number with or without sign, currency, thousands, decimals, percent or unit.

    Returns:
        The number, exactly.

    """
    if len(text) > _MAX_CHARS:
        return None
    match = _NUMBER.fullmatch(text.strip().replace("\N{MINUS SIGN}", "-"))
    if match is None or (match["sign"] and match["inner_sign"]):
        return None
    digits = match["whole"].replace(",", "")
    decimals = match["decimals"] or ""
    divisor = int(match["divisor"] or 1)
    if not digits + decimals or divisor == 0:
        return None
    value = Fraction(int(digits + decimals), 10 ** len(decimals) * divisor)
    return -value if "-" in match["sign"] + match["inner_sign"] else value


def _number(reference: str, problem: "Problem") -> Fraction:
    """Return the number that the problem asks for."""
    value = parse_number(reference)
    if value is None:
        raise UserError(
            f"problem {problem.id} of '{problem.source}' is checked by the verifier 'numeric', but "
            f"its answer is {problem.answer[-40:]!r}; give it the verifier 'exact'"
        )
    return value
