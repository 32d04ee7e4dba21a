"""What depends on a node, most public first, and the least that must run again to replace it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from posttrain.provenance.ledger import Ledger
from posttrain.provenance.ledger.reading import IS_DONE
from posttrain.provenance.lineage import walk
from posttrain.provenance.lineage.graph import Graph, Node, in_order
from posttrain.provenance.lineage.names import Selected
from posttrain.provenance.lineage.places import from_root
from posttrain.provenance.lineage.queries import LIMIT, down
from posttrain.stage.artifact_kinds import kind_named


@dataclass(frozen=True)
class Rebuild:
    """One stage that must run again because its current outputs depend on the node."""

    recipe: str
    stage: str
    seconds: float | None


@dataclass(frozen=True)
class Impact:
    """Everything downstream, as a graph and by importance, and the rebuild plan in order."""

    graph: Graph
    affected: tuple[Node, ...]
    rebuild: tuple[Rebuild, ...]


def impact(ledger: Ledger, node: Selected, root: Path, *, limit: int | None = LIMIT) -> Impact:
    """Find what depends on a node.

    Args:
        ledger: What is asked.
        node: An artifact, a stage run or a release.
        root: The project's root, which paths are shown from.
        limit: Most artifacts; None for all.

    Returns:
        The graph, what is affected, and a rebuild plan, of stages whose newest outputs depend on
        it.

    """
    graph = from_root(down(ledger, node, limit=limit), ledger, root)
    affected = [
        each for each in graph.nodes.values() if each.kind != "stage" and each.id != graph.root
    ]
    return Impact(graph, tuple(sorted(affected, key=_rank)), _rebuild(ledger, node))


def _rank(node: Node) -> int:
    """How far outside a mistake is seen: what people were given, what decides, then data."""
    return 0 if node.kind == "release" else kind_named(node.type).rank


def _rebuild(ledger: Ledger, node: Selected) -> tuple[Rebuild, ...]:
    store = ledger.store
    if node.id.startswith("release:"):
        return ()
    made = (
        [node.artifact]
        if node.artifact is not None
        else walk.members(store, [node.derivation or 0], outputs=True)
    )
    tainted = set(walk.descendants(store, made))
    # To replace a part is to make anew whatever holds it.
    sources = {node.derivation, *walk.makers(store, [*made, *walk.holders(store, made)])}
    newest = store.query(
        "SELECT r.recipe,s.stage,s.derivation FROM stage_runs s JOIN runs r ON r.id=s.run_id"
        " WHERE s.num IN (SELECT MAX(s.num) FROM stage_runs s JOIN runs r ON r.id=s.run_id"
        f" WHERE s.{IS_DONE} GROUP BY r.recipe,s.stage)"
    )
    affected = {}
    for row in newest:
        read, producers = _inputs(ledger, row.derivation)
        if row.derivation in sources or not tainted.isdisjoint(read):
            affected[row.recipe, row.stage] = producers
    lasting = ledger.history.durations([stage for _, stage in affected])
    return tuple(
        Rebuild(recipe, stage, lasting.get(stage)) for recipe, stage in _by_recipe(affected)
    )


def _inputs(ledger: Ledger, derivation: int) -> tuple[set[int], set[str]]:
    """Artifacts that a derivation reads, and the stages that those came from."""
    rows = ledger.store.query(
        "SELECT e.artifact,p.producer FROM edges e JOIN ports p ON p.num=e.port"
        " WHERE e.derivation=:derivation AND e.direction=0",
        {"derivation": derivation},
    )
    return {row.artifact for row in rows}, {row.producer for row in rows}


def _by_recipe(affected: Mapping[tuple[str, str], set[str]]) -> list[tuple[str, str]]:
    """Recipes by name; within one, each stage after those that it reads from."""
    sources = {
        (recipe, stage): [
            (recipe, each) for each in sorted(producers) if (recipe, each) in affected
        ]
        for (recipe, stage), producers in sorted(affected.items())
    }
    return sorted(in_order(sources), key=lambda each: each[0])
