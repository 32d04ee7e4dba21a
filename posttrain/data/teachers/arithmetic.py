"""Sums and differences, with parentheses: innermost first, then from left to right."""

from posttrain.data.teachers.notes import Metadata, Notes


def solve_expression(metadata: Metadata, notes: Notes) -> str:
    """Evaluate the problem's expression, one line per operation."""
    value, rest = _sum(metadata["expression"].split(), notes)
    if rest:
        raise ValueError(f"cannot read '{metadata['expression']}' beyond '{' '.join(rest)}'")
    return str(value)


def _sum(tokens: list[str], notes: Notes) -> tuple[int, list[str]]:
    """The value of `tokens` up to a closing parenthesis, and the tokens from there on."""
    value, tokens = _term(tokens, notes)
    while tokens and tokens[0] in ("+", "-"):
        operator, tokens = tokens[0], tokens[1:]
        right, tokens = _term(tokens, notes)
        value = notes.calculate(value, operator, right)
    return value, tokens


def _term(tokens: list[str], notes: Notes) -> tuple[int, list[str]]:
    if tokens[0] != "(":
        return int(tokens[0]), tokens[1:]
    value, tokens = _sum(tokens[1:], notes)
    return value, tokens[1:]
