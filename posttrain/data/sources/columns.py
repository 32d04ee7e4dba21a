"""Rows of other people's tables as problems: columns mapped, values checked."""

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from posttrain.data.contexts import PromptContext
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.slots import Part

# Our names; the first two must be there, and the last three are looked for only where mapped: other
# people's tables have weights and tools of their own.
FIELDS = ("prompt", "answer", "solution", "difficulty", "weight", "turns", "tools")
_REQUIRED, _AS_TEXT = 2, 5
_ONLY_MAPPED = FIELDS[4:]
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
    weight: float = 1.0
    context: PromptContext = PromptContext()
    """The conversation so far and the tools, where the table has them."""


def unknown_field(name: str) -> str:
    """Say of a name that a recipe maps that it is none of `FIELDS`, and which is the nearest."""
    return f"which is none of {', '.join(FIELDS)}{nearest(name, FIELDS)}"


def parse_row(
    where: str, record: Mapping[str, Any], columns: Mapping[str, str], *, answered: bool = True
) -> ProblemRow:
    """Read one problem out of a row with other people's names.

    Args:
        where: File and line (or row), for errors.
        record: The row's values.
        columns: Our name -> the table's; what is not mapped keeps its name.
        answered: Whether there must be an answer.

    Returns:
        The problem as trimmed text.

    Raises:
        UserError: A column or a value is missing, or is no text.

    """
    values: dict[str, str] = {}
    required = FIELDS[: _REQUIRED if answered else _REQUIRED - 1]
    for name in FIELDS[:_AS_TEXT]:
        column = columns.get(name, "" if name in _ONLY_MAPPED else name)
        if column not in record and (name in required or name in columns):
            raise UserError(
                f"{where}: there is no column '{column}' for {name}{nearest(column, record)}"
            )
        values[name] = _read_text(f"{where}: the {name} ('{column}')", record.get(column))
        if name in required and not values[name]:
            raise UserError(f"{where}: the {name} ('{column}') is empty; fill it or drop the row")
    difficulty = values["difficulty"] or "1"
    if not _WHOLE.fullmatch(difficulty):
        raise UserError(
            f"{where}: difficulty must be a whole number from 0 to 999,999,999, got '{difficulty}'"
        )
    whole = int(difficulty.partition(".")[0])
    weight = _read_weight(where, values["weight"])
    context = _read_context(where, record, columns)
    return ProblemRow(
        values["prompt"], values["answer"], values["solution"], whole, weight, context
    )


def _read_weight(where: str, text: str) -> float:
    try:
        weight = float(text or 1)
    except ValueError:
        weight = math.nan
    if not 0 <= weight < math.inf:
        raise UserError(f"{where}: weight must be a number from 0, got '{text}'")
    return weight


def _read_context(
    where: str, record: Mapping[str, Any], columns: Mapping[str, str]
) -> PromptContext:
    """The conversation before the prompt, and its tools: lists of objects, or JSON of them."""
    found: dict[str, Any] = {}
    for name in FIELDS[_AS_TEXT:]:
        if name not in columns:
            continue
        column = columns[name]
        if column not in record:
            raise UserError(
                f"{where}: there is no column '{column}' for {name}{nearest(column, record)}"
            )
        value = record.get(column)
        if isinstance(value, str) and value.strip():
            try:
                value = json.loads(value)
            except ValueError:
                raise UserError(
                    f"{where}: the {name} ('{column}') is no JSON: {clipped(value)}"
                ) from None
        if value:
            found[name] = value
    return PromptContext.parse(found, where=where) if found else PromptContext()


def parameters_of(
    part: Part, record: Mapping[str, Any], columns: Mapping[str, str], *, where: str
) -> dict[str, Any]:
    """Read the parameters of a verifier that a row states for itself.

    Args:
        part: The verifier, as the recipe sets it.
        record: The row's values; a text may be JSON where the parameter is no text.
        columns: Parameter -> column; a null in it leaves the parameter as it is.
        where: File and line (or row), for errors.

    Returns:
        Those that the row states, as JSON has them.

    Raises:
        UserError: There is no such column or parameter, or its value is not valid.

    """
    given: dict[str, Any] = {}
    for name, column in columns.items():
        if column not in record:
            raise UserError(
                f"{where}: there is no column '{column}' for the parameter {name}"
                f"{nearest(column, record)}"
            )
        if record[column] is not None:
            given[name] = record[column]
    if not given:
        return {}
    fixed = part.model_dump()
    try:
        read = type(part).model_validate({**fixed, **given})
    except ValidationError:
        read = type(part).parse({**fixed, **_decoded(given)}, where=f"{where}: {part.kind}")
    before = part.model_dump(mode="json")
    # What a row gives may be spelled otherwise, such as IFEval's: then what it changed counts.
    return {
        name: value
        for name, value in read.model_dump(mode="json").items()
        if name in given or before[name] != value
    }


def _decoded(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with what texts hold as JSON in their place where they do."""
    found = dict(values)
    for name, value in values.items():
        if isinstance(value, str):
            with suppress(ValueError):
                found[name] = json.loads(value)
    return found


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
