"""Rows of problems from JSONL, parquet or a Hugging Face data set, with the columns mapped."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from posttrain.data.huggingface import read_folder, read_hub
from posttrain.stage.errors import UserError, nearest

Kind = Literal["jsonl", "parquet", "huggingface"]

# Our names; the first two must be there.
FIELDS = ("prompt", "answer", "solution", "difficulty")
_REQUIRED = 2
_SHOWN = 40
# Spreadsheets and pandas write whole numbers as 2.0 where a column has gaps.
_WHOLE = re.compile(r"[0-9]{1,9}(?:\.0*)?")


@dataclass(frozen=True, slots=True)
class Row:
    """One problem as a file states it; `solution` is empty where the file has none."""

    prompt: str
    answer: str
    solution: str
    difficulty: int


def read_rows(
    kind: Kind,
    place: Path | str,
    *,
    columns: Mapping[str, str],
    scratch: Path,
    revision: str | None = None,
    split: str = "train",
    subset: str | None = None,
) -> list[Row]:
    """Read every row of `place`: a path, or for huggingface the name of a data set on the hub.

    `columns` maps `FIELDS` to the file's own names; what is not mapped keeps its name. `scratch`
    is a folder for what the reading library converts. Raises UserError naming file and line (or
    row): malformed rows, missing columns, missing answers.
    """
    for name in columns:
        if name not in FIELDS:
            raise UserError(
                f"{place}: columns maps '{name}', which is none of {', '.join(FIELDS)}"
                f"{nearest(name, FIELDS)}"
            )
    if kind == "jsonl":
        records: Iterable[tuple[str, Mapping[str, Any]]] = _jsonl(Path(place))
    elif kind == "parquet":
        records = _numbered(place, _parquet(Path(place)))
    elif isinstance(place, Path):
        records = _numbered(place, read_folder(place, split=split, scratch=scratch))
    else:
        records = _numbered(place, read_hub(place, revision=revision, split=split, subset=subset))
    rows = [_row(where, record, columns) for where, record in records]
    if not rows:
        raise UserError(f"{place}: there are no rows in it")
    return rows


def _row(where: str, record: Mapping[str, Any], columns: Mapping[str, str]) -> Row:
    values: dict[str, str] = {}
    for position, name in enumerate(FIELDS):
        column = columns.get(name, name)
        if column not in record and (position < _REQUIRED or name in columns):
            raise UserError(
                f"{where}: there is no column '{column}' for {name}{nearest(column, record)}"
            )
        values[name] = _text(f"{where}: the {name} ('{column}')", record.get(column))
        if position < _REQUIRED and not values[name]:
            raise UserError(f"{where}: the {name} ('{column}') is empty; fill it or drop the row")
    difficulty = values["difficulty"] or "1"
    if not _WHOLE.fullmatch(difficulty):
        raise UserError(f"{where}: difficulty must be a whole number, got '{difficulty}'")
    whole = int(difficulty.partition(".")[0])
    return Row(values["prompt"], values["answer"], values["solution"], whole)


def _text(what: str, value: object) -> str:
    """One value as text; a missing one, which some writers spell NaN, as an empty string."""
    if value is None or value != value:
        return ""
    if isinstance(value, bytes | list | tuple | dict):
        raise UserError(f"{what} is {_clipped(value)}; map a column that holds text or numbers")
    text = str(value).strip()
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(f"{what} holds half a character: {_clipped(text)}") from None
    return text


def _jsonl(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    _require_file(path)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where = f"{path}:{number}"
                yield where, _object(where, line)


def _object(where: str, line: bytes) -> Mapping[str, Any]:
    try:
        text = line.decode("utf-8-sig").strip()
        record = json.loads(text)
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not UTF-8 text, at byte {error.start + 1} of the line") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise UserError(f"{where}: not a row: nested too deeply") from None
    if not isinstance(record, dict):
        raise UserError(f"{where}: a row must be a JSON object, got {_clipped(text)}")
    return record


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    """Read by pyarrow: polars, which reads our own tables, aborts on some damaged files."""
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow import parquet

    _require_file(path)
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(use_threads=False):
                yield from batch.to_pylist()
    except (OSError, ValueError, OverflowError, pyarrow.ArrowException) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise UserError(f"{path}: not a readable parquet file: {reason}") from None


def _require_file(path: Path) -> None:
    if not path.is_file():
        wrong = "a directory, and a file is needed here" if path.is_dir() else "not there"
        raise UserError(f"{path} is {wrong}; give the path of one file")


def _numbered(
    place: Path | str, rows: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, record in enumerate(rows, start=1):
        yield f"{place}, row {number}", record


def _clipped(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
