"""An indented tree for the terminal; what was shown once is only named again."""

import io

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from posttrain.lineage.graph import Edge, Node
from posttrain.lineage.render.view import View, caption, details, omission

_STYLES = {"artifact": "cyan", "stage": "bold", "release": "bold magenta"}


def render(view: View) -> str:
    """Draw from the root along the view's direction."""
    graph = view.graph
    neighbours = graph.before() if view.direction == "up" else graph.after()
    top = Tree(_line(graph.nodes[graph.root]), guide_style="dim")
    shown = {graph.root}
    # A stack of its own: a chain of a thousand stages must not exhaust Python's.
    stack = [(top, edge) for edge in reversed(neighbours.get(graph.root, []))]
    while stack:
        parent, edge = stack.pop()
        name = _other(edge, view)
        again = name in shown
        branch = parent.add(_line(graph.nodes[name], edge.role, again=again))
        shown.add(name)
        if not again:
            stack += [(branch, further) for further in reversed(neighbours.get(name, []))]
    return _text(top) + (f"\n{omission(graph)}\n" if graph.omitted else "")


def _other(edge: Edge, view: View) -> str:
    return edge.source if view.direction == "up" else edge.target


def _line(node: Node, role: str = "", *, again: bool = False) -> str:
    label = f"[{_STYLES[node.kind]}]{escape(caption(node))}[/]"
    if role and node.kind == "artifact":
        label = f"[dim]{escape(role)}:[/] {label}"
    if again:
        return f"{label}  [dim](above)[/]"
    described = "  ".join(escape(part) for part in details(node))
    recalled = f"  [bold red]RECALLED: {escape(node.recalled)}[/]" if node.recalled else ""
    return f"{label}  {described}{recalled}"


def _text(tree: Tree) -> str:
    """Rendered without wrapping: the terminal, or whoever reads the pipe, decides."""
    colour = Console().is_terminal
    stream = io.StringIO()
    console = Console(file=stream, width=100_000, force_terminal=colour, highlight=False)
    console.print(tree)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
