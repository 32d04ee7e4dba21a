"""An answer is right if it is an expression in x with the values of the reference."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from posttrain.learning.rewards.score import CORRECT, WRONG_ANSWER, Score
from posttrain.learning.rewards.verifiers.comparing import ComparingVerifier
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

NOT_AN_EXPRESSION = Score(0.0, "not_an_expression")

_MAX_CHARS = 64
_POINTS = range(-8, 9)
"""Where values are compared: two different polynomials of a degree below 17 differ somewhere."""
_BINARY: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


class ExpressionVerifier(ComparingVerifier):
    """Compare a sum, difference or product of whole numbers and x with the reference, by value.

    It is read, and never run as code: 64 characters at most, so that values stay small. Further
    code: "not_an_expression".

    Source: own.
    """

    kind: Literal["expression"] = "expression"

    def compare(self, answer: str, problem: "Problem") -> Score:
        """Compare at seventeen points; see `ComparingVerifier.compare`."""
        found, wanted = polynomial_values(answer), polynomial_values(self.expected(problem))
        if wanted is None:
            raise UserError(
                f"problem {problem.id} of '{problem.source}' is checked by the verifier"
                f" 'expression', but its answer is {problem.answer[-40:]!r}; give it another one"
            )
        if found is None:
            return NOT_AN_EXPRESSION
        return CORRECT if found == wanted else WRONG_ANSWER


def polynomial_values(text: str) -> tuple[int, ...] | None:
    """Compute an expression in x at the whole numbers from -8 to 8.

    >>> polynomial_values("2*x+1")[8:11], polynomial_values("1+x+x")[8:11]
    ((1, 3, 5), (1, 3, 5))
    >>> polynomial_values("x**9") is None
    True

    Args:
        text: Of whole numbers, x, `+`, `-`, `*` and parentheses.

    Returns:
        Its values; None where it is none, or too long.

    """
    if len(text) > _MAX_CHARS:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return tuple(_value(tree, x) for x in _POINTS)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _value(node: ast.expr, x: int) -> int:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id="x"):
            return x
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, x)
        case ast.BinOp(left=left, op=each, right=right) if type(each) in _BINARY:
            return _BINARY[type(each)](_value(left, x), _value(right, x))
    raise ValueError(f"{ast.dump(node)[:40]} is no part of an expression in x")
