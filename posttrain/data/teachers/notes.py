"""A worked solution in the making: its lines, and the slips that are drawn for it."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Item = TypeVar("Item", float, str)

Metadata = Mapping[str, Any]
"""What a generator says of a problem, beside its prompt and its answer."""

_SLIPS = (-3, -2, -1, 1, 2, 3)
_OPERATIONS = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    # Exact in a problem; after a slip it is what a pupil would take it for.
    "/": int.__floordiv__,
}


@dataclass
class Notes:
    """Lines of one worked solution. `errors` draws the slips; equal draws, equal solutions."""

    errors: random.Random
    error_rate: float
    lines: list[str] = field(default_factory=list)

    def value(self, true_value: int) -> int:
        """What the teacher takes `true_value` for."""
        if self.errors.random() < self.error_rate:
            return true_value + self.errors.choice(_SLIPS)
        return true_value

    def choice(self, right: Item, others: Sequence[Item]) -> Item:
        """`right`, or by mistake any of `others`."""
        return self.errors.choice(others) if self.errors.random() < self.error_rate else right

    def calculate(self, left: int, operator: str, right: int) -> int:
        """Write `left operator right = result` and go on with the result, right or wrong.

        A slip may have made a divisor zero: a `ZeroDivisionError`.
        """
        result = self.value(_OPERATIONS[operator](left, right))
        self.lines.append(f"{left} {operator} {right} = {result}")
        return result

    def text(self, answer: str) -> str:
        """The whole solution."""
        return "\n".join([*self.lines, f"#### {answer}"])
