"""The sheet on which a teacher works: steps as lines, each wrong with a given probability."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Metadata = Mapping[str, Any]

_SLIPS = (-3, -2, -1, 1, 2, 3)
_OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


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

    def choice(self, right: int, others: Sequence[int]) -> int:
        """`right`, or by mistake any of `others`."""
        return self.errors.choice(others) if self.errors.random() < self.error_rate else right

    def calculate(self, left: int, operator: str, right: int) -> int:
        """Write `left operator right = result` and go on with the result, right or wrong."""
        result = self.value(_OPERATIONS[operator](left, right))
        self.lines.append(f"{left} {operator} {right} = {result}")
        return result

    def text(self, answer: str) -> str:
        """The whole solution."""
        return "\n".join([*self.lines, f"#### {answer}"])
