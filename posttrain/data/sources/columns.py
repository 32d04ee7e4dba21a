"""Rows of other people's tables as problems: columns mapped, values checked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posttrain.stage.errors import UserError, nearest

# Our names; the first two must be there.
FIELDS = ("prompt", "answer", "solution", "difficulty")
_REQUIRED = 2
_SHOWN = 40
# Spreadsheets and pandas write whole numbers as 2.0 where a column has gaps.
_WHOLE = re.compile(r"[0-9]{1,9}(?:\.0*)?")


@dataclass(frozen=True, slots=True)
class ProblemRow:
    """One problem as a table states it; `solution` is empty where the table has none."""

    prompt: str
    answer: str
    solution: str
    difficulty: int


def check_columns(columns: Mapping[str, str], *, where: str) -> None:
    """Refuse a mapping of a name that is none of `FIELDS`.

    Args:
        columns: Our name -> the table's.
        where: The table, for errors.

    Raises:
        UserError: A name is unknown; the nearest is named.

    """
    for name in columns:
        if name not in FIELDS:
            raise UserError(
                f"{where}: columns maps '{name}', which is none of {', '.join(FIELDS)}"
                f"{nearest(name, FIELDS)}"
            )


def parse_row(where: str, record: Mapping[str, Any], columns: Mapping[str, str]) -> ProblemRow:
    """Read one problem out of a row with other people's names.

    Args:
        where: File and line (or row), for errors.
        record: The row's values.
        columns: Our name -> the table's; what is not mapped keeps its name.

    Returns:
        The problem as trimmed text.

    Raises:
        UserError: A column or a value is missing, or is no text.

    """
    values: dict[str, str] = {}
    for position, name in enumerate(FIELDS):
        column = columns.get(name, name)
        if column not in record and (position < _REQUIRED or name in columns):
            raise UserError(
                f"{where}: there is no column '{column}' for {name}{nearest(column, record)}"
            )
        values[name] = _read_text(f"{where}: the {name} ('{column}')", record.get(column))
        if position < _REQUIRED and not values[name]:
            raise UserError(f"{where}: the {name} ('{column}') is empty; fill it or drop the row")
    difficulty = values["difficulty"] or "1"
    if not _WHOLE.fullmatch(difficulty):
        raise UserError(f"{where}: difficulty must be a whole number, got '{difficulty}'")
    whole = int(difficulty.partition(".")[0])
    return ProblemRow(values["prompt"], values["answer"], values["solution"], whole)


def _read_text(what: str, value: object) -> str:
    """One value as text; a missing one, which some writers spell NaN, as an empty string."""
    if value is None or value != value:
        return ""
    if isinstance(value, bytes | list | tuple | dict):
        raise UserError(f"{what} is {clipped(value)}; map a column that holds text or numbers")
    text = str(value).strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(f"{what} holds half a character: {clipped(text)}") from None
    return text


def clipped(value: object) -> str:
    """Show a value in an error, cut to one short line."""
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
