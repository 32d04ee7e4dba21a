"""The answer is a value in a JSON object."""

import json
import re
from typing import Any, Literal

from pydantic import Field

from posttrain.learning.rewards.extractors.base import Extractor

_STARTS = re.compile(r"[{\[]")
_MOST_WORK = 1 << 22
"""Characters that may be read in vain; a model may write a million brackets that none closes."""
_TRY_WORK, _DEEP_WORK = 200, 100_000
"""Characters that count as read at each bracket, and where brackets in brackets are too deep."""


class JsonAnswer(Extractor):
    """Take a value by its path from the last JSON object or list of a text that has it.

    A text is given back as it is, another value as JSON. Text around the object does not matter.

    Source: own; JSON, RFC 8259.
    """

    kind: Literal["json"] = "json"
    path: str = Field(default="answer", min_length=1)
    """Keys and places in lists, joined by dots, such as `result.0.value`."""

    def extract(self, text: str) -> str | None:
        """Look through the objects of a text, the last one first; see `Extractor.extract`."""
        for value in reversed(json_values(text)):
            found = _below(value, self.path.split("."))
            if found is not None:
                said = found if isinstance(found, str) else json.dumps(found)
                return said.strip() or None
        return None

    def place(self) -> str:
        """Name the path."""
        return f"at '{self.path}' of a JSON object"


def json_values(text: str) -> list[Any]:
    """Return the JSON objects and lists in a text, in their order, without those inside of others.

    >>> json_values('so {"a": [1]} and [2] or {3')
    [{'a': [1]}, [2]]
    """
    decoder, found, end, work = json.JSONDecoder(), [], 0, 0
    for start in (each.start() for each in _STARTS.finditer(text)):
        if start < end:
            continue
        if work > _MOST_WORK:
            break
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            work += _read_in_vain(text, start, error)
        except (ValueError, RecursionError):
            work += _DEEP_WORK
        else:
            found.append(value)
    return found


def _read_in_vain(text: str, start: int, error: json.JSONDecodeError) -> int:
    """Characters that were read before the error; a string without an end is read to the last."""
    unended = error.msg.startswith("Unterminated string")
    return _TRY_WORK + (len(text) if unended else error.pos) - start


def _below(value: Any, path: list[str]) -> Any:
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value
