"""One self-contained HTML page: the graph drawn, searchable, every node's facts one click away."""

import html
import json
from pathlib import Path

from posttrain.provenance.lineage.graph import Node
from posttrain.provenance.lineage.previews import previews
from posttrain.provenance.lineage.render.as_json import as_object
from posttrain.provenance.lineage.render.view import View, caption, details, omission, took

_ASSETS = Path(__file__).parent.parent / "assets"


def render(view: View) -> str:
    """Everything inline: the page opens from a mail or a USB stick, without a network."""
    graph = view.graph
    root = graph.nodes[graph.root]
    question = "made from" if view.direction == "up" else "made into"
    named = f"{root.name} ({caption(root)})" if root.kind == "artifact" else caption(root)
    title = f"What {named} is {question}"
    parts = {
        "TITLE": html.escape(title),
        "NOTE": html.escape(omission(graph)),
        "STYLE": _asset("page.css"),
        "LAYOUT": _asset("dagre.min.js"),
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
        "nodes": [_node(node) | {"preview": seen.get(node.id)} for node in nodes],
        "edges": [[index[edge.source], index[edge.target], edge.role] for edge in graph.edges],
    }


def _node(node: Node) -> dict[str, object]:
    heading = node.name if node.kind != "artifact" else node.type.replace("_", " ")
    return as_object(node) | {"heading": heading, "lines": _lines(node), "caption": caption(node)}


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
