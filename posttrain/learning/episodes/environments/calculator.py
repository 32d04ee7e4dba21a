"""A calculator that the policy may use before it answers."""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from posttrain.learning.episodes.environments.base import (
    POLICY,
    Act,
    Ask,
    Environment,
    EpisodeState,
    Situation,
)
from posttrain.learning.episodes.environments.calls import last_call, tool_answered

if TYPE_CHECKING:
    from posttrain.data.schemas import Problem

_OPERATIONS: Mapping[type, Callable[[Any, Any], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
# Longer than any sum that is asked for; what is deeper or larger is refused, and costs nothing.
_MOST_CHARACTERS, _LARGEST = 200, 10**30


class Calculator(Environment):
    """Answer calls such as `calculate(12 * 34)` at the end of a turn; a turn without one is last.

    Whole numbers, `+ - * // %` and parentheses. What cannot be computed is answered by a sentence
    and counted as a tool error.

    Source: own.
    """

    kind: Literal["calculator"] = "calculator"
    name: str = Field(default="calculate", pattern=r"^[a-z_]+$")
    """How a call is spelled."""
    author: Literal["tool", "user"] = "tool"
    """As whose message the chat template writes a result; `user` for one that knows no tools."""

    def start(self, problem: "Problem", seed: int) -> Situation:  # noqa: ARG002 - see the base
        """Ask; see `Environment.start`."""
        return Situation({}, (Ask(POLICY),))

    def step(self, state: EpisodeState, acts: Sequence[Act], seed: int) -> Situation:  # noqa: ARG002
        """Compute what is called for; see `Environment.step`."""
        (act,) = acts
        called = last_call(act.text, (self.name,))
        if called is None or act.cut:
            return Situation(state)
        facts: Mapping[str, float] = {}
        try:
            told = str(computed(called[1]))
        except ValueError as error:
            told, facts = str(error), {"tool_errors": 1.0}
        return tool_answered(state, told, name=self.name, author=self.author, facts=facts)

    def authors(self) -> tuple[str, ...]:
        """Name who speaks; see `Environment.authors`."""
        return (self.author,)


def computed(text: str) -> int:
    """Compute a sum of whole numbers.

    >>> computed("2 * (3 + 4)"), computed("-7 // 2")
    (14, -4)

    Args:
        text: Numbers, `+ - * // %` and parentheses.

    Returns:
        Its value.

    Raises:
        ValueError: It is none, divides by zero, or is larger than any that is asked for.

    """
    try:
        if len(text) > _MOST_CHARACTERS:
            raise ValueError
        return _value(ast.parse(text.strip(), mode="eval").body)
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError("not a sum of whole numbers") from None


def _value(node: ast.expr) -> int:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            found = value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            found = _OPERATIONS[type(op)](_value(left), _value(right))
        case _:
            raise ValueError
    if abs(found) > _LARGEST:
        raise ValueError
    return found
