"""Files in which each line is one record: what was found of methods, kept beside them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from posttrain.stage.errors import UserError, shown

Kept = TypeVar("Kept")
"""What a line holds."""


def kept_lines(path: Path, form: type[Kept], *, complaint: str) -> Iterator[Kept]:
    """Read a file of such lines, in their order.

    Args:
        path: The file; one that is not there has no lines.
        form: A dataclass, whose fields a line has as a JSON object.
        complaint: Of a line that is none: what it should be, and what to do.

    Yields:
        The record of each line.

    Raises:
        UserError: A line is none.

    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            fields: dict[str, Any] = json.loads(line)
            yield form(**fields)
        except (ValueError, TypeError):
            raise UserError(f"{shown(path)}:{number}: {complaint}") from None
