"""`posttrain.lineage`: what an artifact or a stage run was made from, or what was made from it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from posttrain.operations.python.project import AnyPath, OpenProject, open_project
from posttrain.operations.python.shown import escaped
from posttrain.provenance.ledger import Ledger
from posttrain.provenance.lineage import queries
from posttrain.provenance.lineage.graph import Edge, Graph, Node
from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.places import from_root
from posttrain.provenance.lineage.queries import LIMIT
from posttrain.provenance.lineage.render import FORMATS, View
from posttrain.provenance.lineage.render.view import Direction, caption, details, omission
from posttrain.stage.errors import UserError

TREE_DEPTH = 12
"""Stage runs that a tree follows where nobody says how many."""

FORMAT_OF_SUFFIX: Mapping[str, str] = {
    ".json": "json",
    ".mmd": "mermaid",
    ".md": "mermaid",
    ".jsonl": "openlineage",
    ".ndjson": "openlineage",
    ".html": "html",
    ".txt": "tree",
}
"""The format that a file's suffix asks for."""


@dataclass(frozen=True, repr=False)
class Lineage:
    """A graph of artifacts, stage runs and releases.

    Attributes:
        graph: Nodes by id, the nearest to its `root` first, and edges in the order of making.
        direction: `up`: what the root was made from. `down`: what was made from it.
        project: The project's root.

    """

    graph: Graph
    direction: Direction
    project: Path

    @property
    def nodes(self) -> list[Node]:
        """All nodes, the nearest first."""
        return list(self.graph.nodes.values())

    def render(self, form: str, ledger: Ledger | None = None) -> str:
        """Write the graph as text.

        Args:
            form: `tree`, `json`, `mermaid`, `openlineage` or `html`, a page to pan and search.
            ledger: The project's, where it is open.

        Returns:
            The text; a tree has the colors of a terminal.

        """
        if ledger is not None:
            return FORMATS[form](View(self.graph, self.direction, ledger, self.project))
        with open_project(self.project) as opened:
            return self.render(form, opened.ledger)

    def to_dict(self) -> dict[str, Any]:
        """Give the graph in JSON types, as `posttrain lineage --format json` writes it."""
        found: dict[str, Any] = json.loads(self.render("json"))
        return found

    def save(self, file: AnyPath) -> Path:
        """Write the graph to a file, in the format that its suffix asks for.

        Args:
            file: Such as `rl.html`; what is there is replaced.

        Returns:
            The file.

        """
        path = Path(file)
        path.write_text(click.unstyle(self.render(form_of(path))), encoding="utf-8")
        return path

    def __repr__(self) -> str:
        return click.unstyle(self.render("tree")).rstrip("\n")

    def _repr_html_(self) -> str:
        """Show a tree in a notebook, each branch to be opened and closed."""
        left_out = omission(self.graph)
        return "".join(_branches(self.graph, self.direction)) + f"<div>{escaped(left_out)}</div>"


def lineage(
    node: str,
    direction: Direction = "up",
    *,
    project: AnyPath = ".",
    depth: int | None = TREE_DEPTH,
    limit: int | None = LIMIT,
) -> Lineage:
    """Follow an artifact, a stage run or a release.

    Args:
        node: A digest of 4 or more characters, a path, `STAGE@RUN` (also `STAGE@latest`), a
            release, `verifier:NAME`, or `PATH#tokenizer` of a model.
        direction: `up` to what it was made from, `down` to what was made from it.
        project: A folder of the project, from which relative paths count.
        depth: Stage runs to follow; None follows all.
        limit: Most artifacts, the nearest kept; None keeps all.

    Returns:
        The graph; a terminal shows it as a tree, a notebook as branches to open.

    Raises:
        UserError: The ledger knows no such node, or several.

    """
    with open_project(project) as opened:
        return follow_nodes(opened, [node], direction, cwd=Path(project), depth=depth, limit=limit)


def follow_nodes(
    project: OpenProject,
    names: Sequence[str],
    direction: Direction,
    *,
    cwd: Path,
    depth: int | None,
    limit: int | None,
) -> Lineage:
    """Resolve one node, or the two ends of a way, and ask for their graph.

    Args:
        project: Whose ledger is asked.
        names: What a user calls the node, or both.
        direction: The side of the first node that the question is about.
        cwd: Folder that relative paths count from.
        depth: Stage runs to follow; None follows all.
        limit: Most artifacts; None keeps all.

    Returns:
        The graph, with paths from the project's root.

    """
    ledger, root = project.ledger, project.root
    nodes = [find_node(ledger, name, root=root, cwd=cwd.resolve()) for name in names]
    if len(nodes) > 1:
        graph = queries.between(ledger, *nodes, limit=limit)
    else:
        ask = queries.up if direction == "up" else queries.down
        graph = ask(ledger, nodes[0], limit=limit)
    if depth is not None:
        graph = graph.within(depth)
    return Lineage(from_root(graph, ledger, root), direction, root)


def form_of(file: Path) -> str:
    """Tell the format that a file's suffix asks for.

    Args:
        file: Where a graph is to be written.

    Returns:
        The format.

    Raises:
        UserError: No format has that suffix.

    """
    if file.suffix not in FORMAT_OF_SUFFIX:
        known = ", ".join(FORMAT_OF_SUFFIX)
        raise UserError(f"{file}: no format has the suffix '{file.suffix}' ({known})")
    return FORMAT_OF_SUFFIX[file.suffix]


def _branches(graph: Graph, direction: Direction) -> Iterator[str]:
    """Each node as an element that holds those behind it; what was shown once is only named."""
    neighbors = graph.before() if direction == "up" else graph.after()
    shown: set[str] = set()
    # A stack of its own, as a chain may be longer than Python recurses; text closes an element.
    stack: list[tuple[str, Edge | None, str]] = [(graph.root, None, "")]
    while stack:
        name, edge, text = stack.pop()
        if text:
            yield text
            continue
        again = name in shown
        shown.add(name)
        line = _line(graph.nodes[name], edge, again=again)
        below = [] if again else neighbors.get(name, [])
        if not below:
            yield f"<div style='margin-left:2.4em'>{line}</div>"
            continue
        yield f"<details open style='margin-left:1.2em'><summary>{line}</summary>"
        stack.append(("", None, "</details>"))
        ends = [each.source if direction == "up" else each.target for each in below]
        stack += [(end, each, "") for end, each in zip(ends, below, strict=True)][::-1]


def _line(node: Node, edge: Edge | None, *, again: bool) -> str:
    role = f"{escaped(edge.role)}: " if edge and edge.role and node.kind == "artifact" else ""
    label = escaped(caption(node))
    label = f"<code>{label}</code>" if node.kind == "artifact" else f"<b>{label}</b>"
    if again:
        return f"{role}{label} (above)"
    recalled = [f"RECALLED: {node.recalled}"] if node.recalled else []
    return f"{role}{label} {escaped('  '.join([*details(node), *recalled]))}"
