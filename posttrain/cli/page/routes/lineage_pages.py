"""Lineage: the page of the graph, for any node and either direction."""

from fastapi import APIRouter, Request, Response

from posttrain.cli.page.render import project_shown, render_page, whole_page
from posttrain.provenance.ledger import Ledger
from posttrain.provenance.lineage import queries
from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.places import from_root
from posttrain.provenance.lineage.render import FORMATS, View
from posttrain.provenance.lineage.render.view import Direction

lineage_routes = APIRouter()

_MOST_NODES = 60


@lineage_routes.get("/lineage")
def show_lineage(request: Request, node: str = "", direction: Direction = "up") -> Response:
    """Show what a node was made from, or into; the newest artifact where none is named."""
    project = project_shown(request)
    with project.ledger() as ledger:
        known = _known_nodes(ledger)
        asked = node or next(iter(known), "")
        if asked:
            find_node(ledger, asked, root=project.root, cwd=project.root)
    return render_page(
        request, "lineage.html", section="Lineage", known=known, node=asked, direction=direction
    )


@lineage_routes.get("/lineage/graph")
def show_graph(request: Request, node: str, direction: Direction = "up") -> Response:
    """Answer with the graph's own page."""
    project = project_shown(request)
    ask = queries.up if direction == "up" else queries.down
    with project.ledger() as ledger:
        found = find_node(ledger, node, root=project.root, cwd=project.root)
        graph = from_root(ask(ledger, found), ledger, project.root)
        text = FORMATS["html"](View(graph, direction, ledger, project.root))
    return whole_page(text)


def _known_nodes(ledger: Ledger) -> list[str]:
    """Releases, and what the newest runs made, the last first."""
    tags = [each.tag for each in ledger.annotations.releases()][::-1]
    made = [
        f"{stage_run.stage}@{run.id}"
        for run in ledger.runs(limit=5)
        for stage_run in ledger.stage_runs(run.id)[::-1]
        if stage_run.outputs
    ]
    return list(dict.fromkeys([*made[:1], *tags, *made]))[:_MOST_NODES]
