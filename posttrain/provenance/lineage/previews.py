"""A look inside a node: the first rows of a table, the start of a report, the end of a log."""

import json
import re
from pathlib import Path
from typing import Any

from posttrain.provenance.lineage.artifacts import Finder
from posttrain.provenance.lineage.graph import Node

_ROWS = 5
_CELL = 200
_TEXT = 4000
_LOG_LINES = 40
_COLOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def previews(nodes: list[Node], root: Path) -> dict[str, Any]:
    """By node id: `{"table": {...}}`, `{"text": ...}` or `{"files": [...]}`; absent if gone."""
    finder = Finder(root)
    found = {node.id: _preview(node, root, finder) for node in nodes}
    finder.remember()
    return {name: preview for name, preview in found.items() if preview}


def _preview(node: Node, root: Path, finder: Finder) -> dict[str, Any] | None:
    if node.kind == "stage":
        return _log(root / str(node.facts["log"])) if node.facts["log"] else None
    if node.kind == "release":
        return None
    md5 = node.facts["md5"]
    path = finder.find(node.name, str(node.facts["digest"]), None if md5 is None else str(md5))
    if path is None:
        return None
    if path.is_dir():
        return {"files": _files(path)}
    return _table(path) if node.name.endswith(".parquet") else _text(path)


def _table(path: Path) -> dict[str, Any]:
    import polars as pl

    head = pl.scan_parquet(path).head(_ROWS).collect()
    rows = [[_cell(value) for value in row] for row in head.iter_rows()]
    return {"table": {"columns": head.columns, "rows": rows}}


def _cell(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _CELL else text[:_CELL] + "…"


def _text(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        start = stream.read(_TEXT + 1)
    text = start[:_TEXT].decode("utf-8", errors="replace")
    return {"text": text + ("…" if len(start) > _TEXT else "")}


def _files(folder: Path) -> list[list[str | int]]:
    return [
        [path.relative_to(folder).as_posix(), path.stat().st_size]
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]


def _log(path: Path) -> dict[str, Any] | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return {"text": _COLOR.sub("", "\n".join(lines[-_LOG_LINES:]))}
