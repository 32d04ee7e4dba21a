"""Pairs from a file whose columns have our names; those of others are read by their format."""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from posttrain.data.contexts import PromptContext
from posttrain.data.row_files import file_rows
from posttrain.data.schemas import IDENTITY, PAIRS, row_id, with_row_ids
from posttrain.data.sources.columns import clipped
from posttrain.stage.errors import UserError, nearest

TEXTS = ("prompt", "chosen", "rejected")
"""Columns that every pair has."""
NUMBERS_OF_PAIRS: Mapping[str, tuple[float, float, float | None]] = {
    "chosen_score": (-math.inf, math.inf, None),
    "rejected_score": (-math.inf, math.inf, None),
    "label_prob": (0.0, 1.0, 1.0),
    "weight": (0.0, math.inf, 1.0),
    "step_start": (0.0, 2.0**31 - 1, 0.0),
}
"""Columns of numbers that a pair may have: least, greatest, and what stands where there is none."""
WORDS = ("rationale", "source", "problem_id", "split", "context")
"""Columns of text that a pair may have."""
MADE_HERE = ("id", "parents")
"""Columns of a table that was written here, which are made anew."""
CANONICAL = (*TEXTS, *NUMBERS_OF_PAIRS, *WORDS)

_SIDES = ("train", "heldout")


def read_pair_file(
    path: Path, *, source: str, ignore: Collection[str] = (), name: str = ""
) -> pl.DataFrame:
    """Read pairs from a file whose columns have our names.

    Args:
        path: One of the kinds that `file_rows` reads.
        source: Source of pairs that name none.
        ignore: Further columns, which are left out.
        name: What the rows' origin is called; the path without it.

    Returns:
        PAIRS, a row for each of the file's, which is its parent; `split` is train where the file
        has none.

    Raises:
        UserError: The file or a row of it cannot be used; the line is named.

    """
    if not path.is_file():
        wrong = "a directory, and a file is needed here" if path.is_dir() else "not there"
        raise UserError(f"{path} is {wrong}; give the path of one file of pairs")
    rows = [_pair(row.where, row.record, source, ignore) for row in file_rows(path, name=name)]
    if not rows:
        raise UserError(f"{path}: there are no pairs in it")
    frame = pl.DataFrame(rows, schema={name: PAIRS[name] for name in PAIRS if name != "id"})
    return with_row_ids(frame, IDENTITY["pairs"]).select(list(PAIRS))


def _pair(
    where: str, record: Mapping[str, Any], source: str, ignore: Collection[str]
) -> dict[str, Any]:
    """One row of PAIRS, but for its id."""
    for name in record:
        if name not in CANONICAL and name not in MADE_HERE and name not in ignore:
            raise UserError(
                f"{where}: there is a column '{name}', which is none of {', '.join(CANONICAL)}"
                f"{nearest(str(name), CANONICAL)}; rename it, or name it in ignore"
            )
    texts = {name: _text(where, name, record.get(name)) for name in (*TEXTS, *WORDS)}
    for name in TEXTS:
        if not texts[name]:
            wrong = "is empty" if name in record else "is not there"
            raise UserError(f"{where}: {name} {wrong}; a pair has prompt, chosen and rejected")
    if texts["chosen"] == texts["rejected"]:
        raise UserError(f"{where}: chosen and rejected are the same text; drop the row")
    if texts["split"] not in ("", *_SIDES):
        raise UserError(f"{where}: split must be train or heldout, got '{texts['split']}'")
    texts["source"] = texts["source"] or source
    texts["split"] = texts["split"] or "train"
    if context := texts["context"]:
        try:
            texts["context"] = PromptContext.read(context).written()
        except ValueError:
            raise UserError(f"{where}: context must be JSON, as tables here have it") from None
    asked = [texts[name] for name in ("source", "prompt", "context") if texts[name]]
    texts["problem_id"] = texts["problem_id"] or row_id(*asked)
    numbers = {name: _number(where, name, record.get(name)) for name in NUMBERS_OF_PAIRS}
    step_start = int(numbers.pop("step_start") or 0)
    return {"parents": [where], **texts, **numbers, "step_start": step_start}


def _text(where: str, name: str, value: object) -> str:
    """One value as text; a missing one, which some writers spell NaN, as an empty string."""
    if value is None or value != value:
        return ""
    if not isinstance(value, str):
        raise UserError(f"{where}: {name} must be text, got {clipped(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UserError(f"{where}: {name} holds half a character: {clipped(value)}") from None
    return value.strip()


def _number(where: str, name: str, value: object) -> float | None:
    least, greatest, default = NUMBERS_OF_PAIRS[name]
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        return default
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    whole = name != "step_start" or number.is_integer()
    if not math.isfinite(number) or not least <= number <= greatest or not whole:
        span = f" from {least:g} to {greatest:g}" if math.isfinite(least + greatest) else ""
        kind = "a whole number" if name == "step_start" else "a number"
        raise UserError(f"{where}: {name} must be {kind}{span}, got {clipped(value)}")
    if name == "weight" and number == 0:
        raise UserError(f"{where}: weight must be above 0; drop the row if it is to count nothing")
    return number
