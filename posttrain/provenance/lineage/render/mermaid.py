"""A Mermaid flowchart, for Markdown that a forge renders."""

from posttrain.provenance.lineage.graph import Node
from posttrain.provenance.lineage.render.view import View, caption, details, omission
from posttrain.stage.artifact_kinds import kind_named

# Tables are drawn as drums, models as hexagons, stages as boxes, releases as stadiums,
# verifiers as rhombs, what models carry inside as boxes with double sides.
_SHAPES = {
    "model": ("{{", "}}"),
    "report": ("[/", "/]"),
    "verifier": ("{", "}"),
    "part": ("[[", "]]"),
}
_KINDS = {"artifact": ("[(", ")]"), "stage": ("[", "]"), "release": ("([", "])")}


def render(view: View) -> str:
    """Left to right, in the order of making."""
    graph = view.graph
    names = {node: f"n{index}" for index, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    lines += [f"  {names[node.id]}{_shape(node)}" for node in graph.nodes.values()]
    lines += [
        f'  {names[edge.source]} -->|"{_escape_text(edge.role)}"| {names[edge.target]}'
        for edge in graph.edges
    ]
    bad = [names[node.id] for node in graph.nodes.values() if node.recalled]
    if bad:
        lines += [
            "  classDef recalled stroke:#c00,stroke-width:3px",
            f"  class {','.join(bad)} recalled",
        ]
    if graph.omitted:
        lines.append(f"  %% {omission(graph)}")
    return "\n".join(lines) + "\n"


def _shape(node: Node) -> str:
    opening, closing = _SHAPES.get(kind_named(node.type).shape, _KINDS[node.kind])
    label = "<br/>".join(_escape_text(part) for part in [caption(node), *details(node)[:1]])
    return f'{opening}"{label}"{closing}'


def _escape_text(text: str) -> str:
    """Mermaid has no escape but character entities."""
    escaped = text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;")
    return escaped.replace("|", "#124;").replace("\n", " ")
