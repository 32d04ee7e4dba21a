"""Rows of problems from JSONL, parquet or a Hugging Face data set, with the columns mapped."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from posttrain.errors import UserError, nearest

Kind = Literal["jsonl", "parquet", "huggingface"]

# Our names; the first two must be there.
FIELDS = ("prompt", "answer", "solution", "difficulty")
_REQUIRED = 2


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
    revision: str | None = None,
    split: str = "train",
) -> list[Row]:
    """Read every row of `place`: a path, or for huggingface the name of a data set on the hub.

    `columns` maps `FIELDS` to the file's own names; what is not mapped keeps its name. Raises
    UserError naming file and line (or row): malformed rows, missing columns, missing answers.
    """
    for name in columns:
        if name not in FIELDS:
            raise UserError(f"{place}: columns maps '{name}', which is none{nearest(name, FIELDS)}")
    if kind == "jsonl":
        records: Iterable[tuple[str, Mapping[str, Any]]] = _jsonl(Path(place))
    elif kind == "parquet":
        records = _parquet(Path(place))
    else:
        records = _huggingface(place, revision, split)
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
        value = record.get(column)
        values[name] = "" if value is None else str(value).strip()
        if position < _REQUIRED and not values[name]:
            raise UserError(f"{where}: the {name} ('{column}') is empty; fill it or drop the row")
    difficulty = values["difficulty"] or "1"
    if not difficulty.isdigit():
        raise UserError(f"{where}: difficulty must be a whole number, got '{difficulty}'")
    return Row(values["prompt"], values["answer"], values["solution"], int(difficulty))


def _jsonl(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{path}:{number}"
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise UserError(f"{where}: not JSON: {error.msg} at column {error.colno}") from None
            if not isinstance(record, dict):
                raise UserError(f"{where}: a row must be a JSON object, got {line.strip()[:40]!r}")
            yield where, record


def _parquet(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import polars as pl

    try:
        frame = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UserError(f"{path}: not a readable parquet file: {error}") from None
    return _numbered(path, frame.iter_rows(named=True))


def _huggingface(
    place: Path | str, revision: str | None, split: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import datasets

    datasets.disable_caching()
    datasets.disable_progress_bars()
    try:
        if isinstance(place, Path) and (place / "dataset_info.json").exists():
            table: Sequence[Mapping[str, Any]] = datasets.load_from_disk(str(place))
        else:
            table = datasets.load_dataset(str(place), split=split, revision=revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"data set '{place}' (split {split}, revision {revision}) did not load: {reason}; "
            "without a network, download it elsewhere and give its folder as path"
        ) from None
    return _numbered(place, table)


def _numbered(
    place: Path | str, rows: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, record in enumerate(rows, start=1):
        yield f"{place}, row {number}", record
