"""An indented tree for the terminal; what was shown once is only named again."""

from collections.abc import Mapping
from typing import Any

import click

from posttrain.provenance.lineage.graph import Edge, Node
from posttrain.provenance.lineage.render.view import View, caption, details, omission
from posttrain.stage.artifact_kinds import kind_named

_STYLES: Mapping[str, Mapping[str, Any]] = {
    "artifact": {"fg": "cyan"},
    "stage": {"bold": True},
    "release": {"fg": "magenta", "bold": True},
    "inside": {"fg": "yellow"},
}


def render(view: View) -> str:
    """Draw from the root along the view's direction; colors are dropped where nobody sees them."""
    graph = view.graph
    neighbors = graph.before() if view.direction == "up" else graph.after()
    lines = [_line(graph.nodes[graph.root])]
    shown = {graph.root}
    # A stack of its own: a chain of a thousand stages must not exhaust Python's.
    stack = _branches(neighbors.get(graph.root, []), "")
    while stack:
        edge, indent, last = stack.pop()
        name = edge.source if view.direction == "up" else edge.target
        again = name in shown
        shown.add(name)
        guide = click.style(indent + ("└── " if last else "├── "), dim=True)
        lines.append(guide + _line(graph.nodes[name], edge.role, again=again))
        if not again:
            below = indent + ("    " if last else "│   ")
            stack += _branches(neighbors.get(name, []), below)
    if graph.omitted:
        lines.append(omission(graph))
    return "\n".join(lines) + "\n"


def _branches(edges: list[Edge], indent: str) -> list[tuple[Edge, str, bool]]:
    """Edges to draw at one depth, last first as a stack wants them."""
    final = len(edges) - 1
    return [(edge, indent, index == final) for index, edge in enumerate(edges)][::-1]


def _line(node: Node, role: str = "", *, again: bool = False) -> str:
    style = "inside" if kind_named(node.type).is_inside else node.kind
    label = click.style(caption(node), **_STYLES[style])
    if role and node.kind == "artifact":
        label = f"{click.style(role + ':', dim=True)} {label}"
    if again:
        return f"{label}  {click.style('(above)', dim=True)}"
    recalled = [click.style(f"RECALLED: {node.recalled}", fg="red")] if node.recalled else []
    return "  ".join([label, *details(node), *recalled])
