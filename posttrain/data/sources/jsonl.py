"""Problems from a file of JSON lines."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from posttrain.data.sources.base import SourceRequest
from posttrain.data.sources.columns import clipped
from posttrain.data.sources.table import FileSource
from posttrain.stage.errors import UserError, first_line


class JsonlSource(FileSource):
    """Reads a file with one JSON object a line.

    Source: own reader; JSON Lines (jsonlines.org).
    """

    kind: Literal["jsonl"] = "jsonl"

    def where(self, place: Path | str, number: int) -> str:
        """Name a line, for errors."""
        return f"{place}:{number}"

    def records(self, request: SourceRequest) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Read line by line; see `TableSource.records`."""
        return json_lines(self.file(request))


def json_lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Read a file of JSON objects, one a line.

    Args:
        path: The file; empty lines are passed over.

    Yields:
        The number of the line, from 1, and the object.

    Raises:
        UserError: A line is no JSON object; it is named.

    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, _object(f"{path}:{number}", line)


def _object(where: str, line: bytes) -> Mapping[str, Any]:
    try:
        text = line.decode("utf-8-sig").strip()
        record = json.loads(text, object_pairs_hook=_without_twice)
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: not UTF-8 text, at byte {error.start + 1} of the line") from None
    except json.JSONDecodeError as error:
        raise UserError(
            f"{where}: not JSON: {error.msg} at column {error.colno}; each line must be one JSON"
            " object"
        ) from None
    except ValueError as error:
        # A number of more digits than Python reads, or a name that stands twice.
        raise UserError(f"{where}: not a row: {first_line(error).partition('; use')[0]}") from None
    except RecursionError:
        raise UserError(f"{where}: not a row: nested too deeply") from None
    if not isinstance(record, dict):
        raise UserError(f"{where}: a row must be a JSON object, got {clipped(text)}")
    return record


def _without_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its pairs; JSON does not say which of two equal names counts."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"'{clipped(twice)[1:-1]}' stands twice in one object; keep one of them")
    return made
