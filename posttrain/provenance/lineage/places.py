"""Where artifacts lie in the project: its recipes share a ledger, and record paths of their own."""

import posixpath
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from posttrain.provenance.ledger import Ledger
from posttrain.provenance.ledger.annotations import RECIPE_FOLDER
from posttrain.provenance.ledger.location import recipe_folder
from posttrain.provenance.ledger.reading import IS_DONE
from posttrain.provenance.ledger.store import query_in
from posttrain.provenance.lineage.graph import Graph

_PLACES = (
    "SELECT a.type,a.digest,p.path,r.recipe,n.value AS folder,e.direction,MAX(s.num) AS newest"
    " FROM artifacts a JOIN edges e ON e.artifact=a.num JOIN ports p ON p.num=e.port"
    f" JOIN stage_runs s ON s.derivation=e.derivation AND s.{IS_DONE}"
    " JOIN runs r ON r.id=s.run_id"
    f" LEFT JOIN annotations n ON n.subject=r.id AND n.name='{RECIPE_FOLDER}'"
    " WHERE a.digest IN ({values}) GROUP BY a.type,a.digest,p.path,r.recipe,n.value,e.direction"
)


def from_root(graph: Graph, ledger: Ledger, root: Path) -> Graph:
    """Spell the paths of artifacts from the project's root.

    They are recorded from their recipe's folder, so that `data/rl/policy` may be a file of any
    recipe. An artifact that several recipes had is shown where it lies, and where it was made
    before where it was only read.

    Args:
        graph: As a query gives it.
        ledger: What it was asked of.
        root: The project.

    Returns:
        The same graph; an artifact that no finished stage had keeps the path that it has.

    """
    artifacts = [node for node in graph.nodes.values() if node.kind == "artifact"]
    digests = sorted({str(node.facts["digest"]) for node in artifacts})
    ranked: dict[str, list[tuple[tuple[bool, int, int], str]]] = defaultdict(list)
    for row in query_in(ledger.store, _PLACES, digests):
        folder = row.folder or recipe_folder(root, row.recipe)
        path = posixpath.normpath(posixpath.join(folder, row.path))
        rank = ((root / path).exists(), row.direction, row.newest)
        ranked[f"{row.type}:{row.digest}"].append((rank, path))
    names = {
        node.id: max(ranked[node.id])[1] if ranked[node.id] else node.name for node in artifacts
    }
    for edge in graph.edges:
        # What a model carries inside is called by the model's path, and no stage had it by itself.
        if edge.source in names and edge.target in names:
            whole, _, part = names[edge.source].partition("#")
            if part and whole == graph.nodes[edge.target].name:
                names[edge.source] = f"{names[edge.target]}#{part}"
    nodes = {
        each: replace(node, name=names.get(each, node.name)) for each, node in graph.nodes.items()
    }
    return replace(graph, nodes=nodes)
