"""Worked solutions of countdown: one of the ways to the target, some of which are rare."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from posttrain.data.teachers.notes import Metadata, Notes

_MOST = 4
"""Numbers whose ways are all looked at; six have millions."""
_RARE = 0.25
"""How often a way with a product or a quotient is written, beside one without: by each of them."""


@dataclass(frozen=True)
class _Way:
    """A value with the expression that has it, and the lines that lead there."""

    value: int
    expression: str
    lines: tuple[str, ...] = ()
    products: int = 0


def solve_countdown(metadata: Metadata, notes: Notes) -> str:
    """Write one way from all numbers to the target, two of them joined in each line.

    Of several ways one is drawn; a slip takes a way to another value. A way with a product or a
    quotient is drawn a quarter as often for each, so that a model that learns from these
    solutions knows most ways, and some of them hardly. Of more than four numbers there is the
    generator's own expression, without a line.

    Raises:
        ValueError: No way leads there through whole numbers above zero.

    """
    numbers, target = tuple(metadata["numbers"]), metadata["target"]
    if len(numbers) > _MOST:
        return notes.choice(str(metadata["expression"]), [str(sum(numbers))])
    ways = _ways(numbers)
    right = [name for name, way in ways.items() if way.value == target]
    if not right:
        raise ValueError(f"no way to {target} with {numbers}")
    (drawn,) = notes.errors.choices(right, [_RARE ** ways[name].products for name in right])
    others = [name for name, way in ways.items() if way.value != target] or [drawn]
    way = ways[notes.choice(drawn, others)]
    notes.lines.extend(way.lines)
    return way.expression.removeprefix("(").removesuffix(")")


@cache
def _ways(numbers: tuple[int, ...]) -> dict[str, _Way]:
    """All ways to join the numbers, by their expressions."""
    return {way.expression: way for way in _joined([_Way(each, str(each)) for each in numbers])}


def _joined(left: Sequence[_Way]) -> Iterator[_Way]:
    """All ways to join numbers until one is left, through whole numbers above zero."""
    if len(left) == 1:
        yield left[0]
        return
    for i, first in enumerate(left):
        for j, second in enumerate(left):
            if i == j:
                continue
            rest = [each for k, each in enumerate(left) if k not in (i, j)]
            for way in _pairs(first, second, ordered=i < j):
                yield from _joined([*rest, way])


def _pairs(first: _Way, second: _Way, *, ordered: bool) -> Iterator[_Way]:
    """Join two in every way; sums and products once, in the order in which they were given."""
    results = {"-": first.value - second.value}
    if first.value % second.value == 0:
        results["/"] = first.value // second.value
    if ordered:
        results |= {"+": first.value + second.value, "*": first.value * second.value}
    for operator, value in results.items():
        if value <= 0:
            continue
        yield _Way(
            value,
            f"({first.expression} {operator} {second.expression})",
            (
                *first.lines,
                *second.lines,
                f"{first.value} {operator} {second.value} = {value}",
            ),
            first.products + second.products + (operator in "*/"),
        )
