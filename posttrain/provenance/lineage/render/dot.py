"""Graphviz' DOT."""

from posttrain.provenance.lineage.graph import Node
from posttrain.provenance.lineage.render.view import View, caption, details, omission
from posttrain.stage.artifact_kinds import kind_named

_SHAPES = {"model": "hexagon", "report": "note", "judge": "diamond", "part": "component"}
_KINDS = {"artifact": "cylinder", "stage": "box", "release": "doubleoctagon"}


def render(view: View) -> str:
    """Left to right, in the order of making."""
    graph = view.graph
    names = {node: f"n{index}" for index, node in enumerate(graph.nodes)}
    lines = ["digraph lineage {", "  rankdir=LR", '  node [fontname="sans-serif"]']
    if graph.omitted:
        lines.append(f"  // {omission(graph)}")
    lines += [f"  {names[node.id]} [{_attributes(node)}]" for node in graph.nodes.values()]
    lines += [
        f"  {names[edge.source]} -> {names[edge.target]} [label={_quoted(edge.role)}]"
        for edge in graph.edges
    ]
    return "\n".join([*lines, "}"]) + "\n"


def _attributes(node: Node) -> str:
    label = "\n".join([caption(node), *details(node)[:1]])
    shape = _SHAPES.get(kind_named(node.type).shape, _KINDS[node.kind])
    color = ", color=red, penwidth=3" if node.recalled else ""
    return f"label={_quoted(label)}, shape={shape}{color}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
