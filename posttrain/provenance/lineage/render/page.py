"""One self-contained HTML page: the graph drawn, searchable, every node's facts one click away."""

import html
import json
import re
from pathlib import Path
from typing import Any

from posttrain.provenance.lineage.artifacts import Finder
from posttrain.provenance.lineage.graph import Node
from posttrain.provenance.lineage.render.as_json import as_object
from posttrain.provenance.lineage.render.view import View, caption, details, omission, took

_ROWS = 5
_CELL = 200
_TEXT = 4000
_LOG_LINES = 40
_COLOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

_ASSETS = Path(__file__).parent.parent / "assets"


def previews(nodes: list[Node], root: Path) -> dict[str, Any]:
    """Read a few rows, lines or names of what the nodes stand for.

    Args:
        nodes: Of a graph.
        root: The project's root.

    Returns:
        By node id `{"table": {...}}`, `{"text": ...}` or `{"files": [...]}`; none of what is gone.

    """
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
        return {"files": _list_files(path)}
    return _table(path) if node.name.endswith(".parquet") else _preview_text(path)


def _table(path: Path) -> dict[str, Any]:
    import polars as pl

    head = pl.scan_parquet(path).head(_ROWS).collect()
    rows = [[_cell(value) for value in row] for row in head.iter_rows()]
    return {"table": {"columns": head.columns, "rows": rows}}


def _cell(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _CELL else text[:_CELL] + "…"


def _preview_text(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        start = stream.read(_TEXT + 1)
    text = start[:_TEXT].decode("utf-8", errors="replace")
    return {"text": text + ("…" if len(start) > _TEXT else "")}


def _list_files(folder: Path) -> list[list[str | int]]:
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


def drawer_scripts() -> list[str]:
    """Return the scripts that lay a graph out and draw it, for this page and for others.

    Returns:
        dagre, then `graph.js`, each for a script element of its own.

    """
    return [_asset("dagre.min.js"), _asset("graph.js")]


def render(view: View) -> str:
    """Everything inline: the page opens from a mail or a USB stick, without a network."""
    graph = view.graph
    root = graph.nodes[graph.root]
    question = "made from" if view.direction == "up" else "made into"
    named = f"{root.name} ({caption(root)})" if root.kind == "artifact" else caption(root)
    title = f"What {named} is {question}"
    layout, drawer = drawer_scripts()
    parts = {
        "TITLE": html.escape(title),
        "NOTE": html.escape(omission(graph)),
        "STYLE": _asset("page.css"),
        "LAYOUT": layout,
        "DRAWER": drawer,
        "SCRIPT": _asset("page.js"),
        "DATA": _inline(_data(view)),
    }
    page = _asset("page.html")
    # One pass: a value that happens to hold a placeholder's name must stay as it is.
    pieces = page.split("%%")
    return "".join(parts[piece] if index % 2 else piece for index, piece in enumerate(pieces))


def _data(view: View) -> object:
    graph = view.graph
    nodes = list(graph.nodes.values())
    index = {node.id: number for number, node in enumerate(nodes)}
    seen = previews(nodes, view.root)
    return {
        "root": index[graph.root],
        "direction": view.direction,
        "nodes": [
            _node(node, root=node.id == graph.root) | {"preview": seen.get(node.id)}
            for node in nodes
        ],
        "edges": [[index[edge.source], index[edge.target], edge.role] for edge in graph.edges],
    }


def _node(node: Node, *, root: bool) -> dict[str, object]:
    heading = node.name if node.kind != "artifact" else node.type.replace("_", " ")
    said = as_object(node)
    marks = [node.kind, node.type, "recalled" if said["recalled"] else "", "root" if root else ""]
    drawn = {
        "heading": heading,
        "lines": _lines(node),
        "caption": caption(node),
        "style": " ".join(filter(None, marks)),
        "round": 4 if node.kind == "stage" else 12,
        "hint": f"{caption(node)}\n{node.name}",
    }
    return said | drawn


def _lines(node: Node) -> list[str]:
    """The small print below a node's heading in the drawing."""
    if node.kind == "artifact":
        return [node.name, " · ".join([node.title, *details(node)[1:]])]
    if node.kind == "release":
        return ["release"]
    return [f"{took(node)} · {node.facts['run']}", *details(node)[1:2]]


def _inline(data: object) -> str:
    """JSON that cannot end the script element that it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
