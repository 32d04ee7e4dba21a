"""Worked solutions of generated problems: sums, legs, divisors, bases, bits and sorted lists."""

from collections.abc import Sequence
from functools import reduce

from posttrain.data.teachers.notes import Item, Metadata, Notes

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def solve_legs(metadata: Metadata, notes: Notes) -> str:
    """Multiply, then add, one line each."""
    from reasoning_gym.arithmetic.leg_counting import ANIMALS

    total: int | None = None
    for animal, count in metadata["animals"].items():
        legs = notes.value(count * ANIMALS[animal])
        notes.lines.append(f"{count} {animal} = {legs}")
        total = legs if total is None else notes.calculate(total, "+", legs)
    return str(total)


def solve_expression(metadata: Metadata, notes: Notes) -> str:
    """Evaluate the problem's expression, one line per operation."""
    value, rest = _sum(metadata["expression"].split(), notes)
    if rest:
        raise ValueError(f"cannot read '{metadata['expression']}' beyond '{' '.join(rest)}'")
    return str(value)


def _sum(tokens: list[str], notes: Notes) -> tuple[int, list[str]]:
    """The value of `tokens` up to a closing parenthesis, and the tokens from there on."""
    value, tokens = _product(tokens, notes)
    while tokens and tokens[0] in ("+", "-"):
        operator, tokens = tokens[0], tokens[1:]
        right, tokens = _product(tokens, notes)
        value = notes.calculate(value, operator, right)
    return value, tokens


def _product(tokens: list[str], notes: Notes) -> tuple[int, list[str]]:
    value, tokens = _term(tokens, notes)
    while tokens and tokens[0] in ("*", "/"):
        operator, tokens = tokens[0], tokens[1:]
        right, tokens = _term(tokens, notes)
        value = notes.calculate(value, operator, right)
    return value, tokens


def _term(tokens: list[str], notes: Notes) -> tuple[int, list[str]]:
    if tokens[0] not in ("(", "-("):
        return int(tokens[0]), tokens[1:]
    sign = 1 if tokens[0] == "(" else -1
    value, tokens = _sum(tokens[1:], notes)
    return sign * value, tokens[1:]


def solve_gcd(metadata: Metadata, notes: Notes) -> str:
    """Run Euclid's algorithm, one remainder per line."""

    def gcd(left: int, right: int) -> int:
        while right:
            # An error must leave a remainder: below the divisor, and not below zero.
            rest = notes.value(left % right) % right
            notes.lines.append(f"{left} % {right} = {rest}")
            left, right = right, rest
        return left

    return str(reduce(gcd, metadata["numbers"]))


def solve_base_conversion(metadata: Metadata, notes: Notes) -> str:
    """Read the digits from the left, then divide by the other base until nothing is left."""
    source, target = metadata["source_base"], metadata["target_base"]
    value = 0
    for digit in metadata["source_repr"]:
        read = notes.value(value * source + _DIGITS.index(digit))
        notes.lines.append(f"{value} * {source} + {_DIGITS.index(digit)} = {read}")
        value = max(read, 0)
    digits = ""
    while value:
        rest = notes.value(value % target) % target
        notes.lines.append(f"{value} / {target} = {value // target} rest {rest}")
        digits, value = _DIGITS[rest] + digits, value // target
    return digits or "0"


def solve_count_bits(metadata: Metadata, notes: Notes) -> str:
    """Halve the number until nothing is left, and count the rests."""
    value, ones = metadata["number"], 0
    while value:
        counted = max(notes.value(ones + value % 2), 0)
        notes.lines.append(f"{value} / 2 = {value // 2} rest {value % 2}, {counted}")
        value, ones = value // 2, counted
    return str(ones)


def solve_number_sorting(metadata: Metadata, notes: Notes) -> str:
    """Write the sorted list; a slip picks any number that is left."""
    written = {float(text): text.removesuffix(".0") for text in metadata["original_numbers"]}
    numbers = [float(text) for text in metadata["original_numbers"]]
    picked = _picked(numbers, metadata, notes)
    return f"[{', '.join(written[number] if number else '0' for number in picked)}]"


def solve_word_sorting(metadata: Metadata, notes: Notes) -> str:
    """Write the words in the order of their letters' code points; a slip picks any that is left."""
    return ", ".join(_picked(metadata["transformed_words"], metadata, notes))


def _picked(items: Sequence[Item], metadata: Metadata, notes: Notes) -> list[Item]:
    left = list(items)
    picked = []
    while left:
        best = min(left) if metadata["direction"] == "ascending" else max(left)
        item = notes.choice(best, left)
        left.remove(item)
        picked.append(item)
    return picked
