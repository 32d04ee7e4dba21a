"""Notebooks as pages: text as it is, code with what it showed when the notebook was executed."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def notebook_page(path: Path) -> str:
    """The Markdown of a stored notebook of format 4.

    Args:
        path: The file.

    Returns:
        The cells in their order. What a cell showed stands below it: as HTML where it has some, and
        else as text.

    Raises:
        ValueError: A cell ended in an error, or showed nothing that a page can have.

    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return "\n\n".join(part for cell in notebook["cells"] for part in _parts(cell)) + "\n"


def _parts(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        yield _shown(output)


def _shown(output: Mapping[str, Any]) -> str:
    kind = output["output_type"]
    if kind == "stream":
        return _text("".join(output["text"]))
    data: Mapping[str, Any] = output.get("data", {})
    if "text/html" in data:
        # Markdown ends a block of HTML at the first empty line.
        lines = "".join(data["text/html"]).splitlines()
        whole = "\n".join(line for line in lines if line.strip())
        return f'<div class="shown">\n{whole}\n</div>'
    if "text/plain" in data:
        return _text("".join(data["text/plain"]))
    raise ValueError(f"a page cannot show what a cell of a notebook gave: {kind}, {sorted(data)}")


def _text(text: str) -> str:
    plain = _COLORS.sub("", text).rstrip("\n")
    return f"```text\n{plain}\n```"
