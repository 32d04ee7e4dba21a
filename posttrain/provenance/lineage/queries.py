"""The questions: what is it made of, what is made of it, and what lies between two nodes."""

from collections.abc import Sequence

from posttrain.provenance.ledger import Ledger
from posttrain.provenance.lineage import walk
from posttrain.provenance.lineage.build import build_graph
from posttrain.provenance.lineage.graph import Graph
from posttrain.provenance.lineage.names import Selected
from posttrain.stage.errors import UserError

# More than anybody reads, and what a page still draws quickly.
LIMIT = 500


def up(ledger: Ledger, node: Selected, *, limit: int | None = LIMIT) -> Graph:
    """Find everything that a node was made from.

    Args:
        ledger: What is asked.
        node: Where to begin.
        limit: Most artifacts, the nearest kept; None for all.

    Returns:
        The graph, which says how much it leaves out.

    """
    found = _ancestors(ledger, node)
    kept = found[:limit]
    graph = build_graph(ledger, node, kept, _own(node) + walk.makers(ledger.store, kept))
    return _counted(graph, found, kept)


def down(ledger: Ledger, node: Selected, *, limit: int | None = LIMIT) -> Graph:
    """Find everything that was made from a node.

    Args:
        ledger: What is asked.
        node: Where to begin.
        limit: Most artifacts, the nearest kept; None for all.

    Returns:
        The graph, which says how much it leaves out.

    """
    found = _descendants(ledger, node)
    kept = found[:limit]
    derivations = _own(node) + walk.users(ledger.store, kept)
    derivations += walk.releases_of(ledger.store, kept)
    return _counted(build_graph(ledger, node, kept, derivations), found, kept)


def between(ledger: Ledger, start: Selected, end: Selected, *, limit: int | None = LIMIT) -> Graph:
    """Find every way from one node to the other, whichever of them came first.

    Args:
        ledger: What is asked.
        start: The one.
        end: The other.
        limit: Most artifacts; None for all.

    Returns:
        The graph of the artifacts on the way.

    Raises:
        UserError: Nothing leads from one to the other.

    """
    for first, last in ((start, end), (end, start)):
        reached = set(_descendants(ledger, first))
        on_the_way = [each for each in _ancestors(ledger, last) if each in reached]
        if on_the_way:
            kept = on_the_way[:limit]
            derivations = _own(first) + walk.users(ledger.store, kept) + _own(last)
            graph = build_graph(ledger, last, kept, list(dict.fromkeys(derivations)))
            return _counted(graph, on_the_way, kept)
    raise UserError(
        f"nothing leads from {start.id.partition(':')[2][:12] or start.id} to "
        f"{end.id.partition(':')[2][:12] or end.id}, in either direction"
    )


def _ancestors(ledger: Ledger, node: Selected) -> list[int]:
    return walk.ancestors(ledger.store, _seeds(ledger, node, outputs=False))


def _descendants(ledger: Ledger, node: Selected) -> list[int]:
    return walk.descendants(ledger.store, _seeds(ledger, node, outputs=True))


def _seeds(ledger: Ledger, node: Selected, *, outputs: bool) -> list[int]:
    """The artifact itself, or one side of a stage run."""
    if node.artifact is not None:
        return [node.artifact]
    return walk.members(ledger.store, _own(node), outputs=outputs)


def _own(node: Selected) -> list[int]:
    return [] if node.derivation is None else [node.derivation]


def _counted(graph: Graph, found: Sequence[int], kept: Sequence[int]) -> Graph:
    return Graph(graph.root, graph.nodes, graph.edges, len(found) - len(kept))
