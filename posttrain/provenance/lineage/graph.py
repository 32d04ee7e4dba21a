"""The graph that every question is answered with: typed nodes, and edges in the order of making."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from posttrain.stage.artifact_kinds import kind_named

T = TypeVar("T")
NodeKind = Literal["artifact", "stage", "release"]
Facts = Mapping[str, str | int | float | None]


@dataclass(frozen=True)
class Node:
    """An artifact (by digest and type), a stage run, or a release.

    `type` is the artifact's type, the stage's task or "release"; `name` is a path, a stage or a
    tag; `recalled` says why the artifact must not be used.
    """

    id: str
    kind: NodeKind
    type: str
    name: str
    facts: Facts = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    recalled: str | None = None

    @property
    def title(self) -> str:
        """A short name that `posttrain lineage` takes back."""
        if self.kind == "artifact":
            return str(self.facts["digest"])[:12]
        return f"{self.name}@{self.facts['run']}" if self.kind == "stage" else self.name


@dataclass(frozen=True)
class Edge:
    """What `source` is comes before `target`: a stage read it, or made it, through port `role`."""

    source: str
    target: str
    role: str


@dataclass(frozen=True)
class Graph:
    """Nodes by id, nearest to `root` first; `omitted` counts artifacts left out by a limit."""

    root: str
    nodes: Mapping[str, Node]
    edges: tuple[Edge, ...]
    omitted: int = 0

    def before(self) -> dict[str, list[Edge]]:
        """Edges by target."""
        return _grouped((edge.target, edge) for edge in self.edges)

    def after(self) -> dict[str, list[Edge]]:
        """Edges by source."""
        return _grouped((edge.source, edge) for edge in self.edges)

    def within(self, depth: int) -> "Graph":
        """Keep what is near the root, in either direction.

        What artifacts carry inside ends the way: one verifier is in many tables, and would make
        neighbors of all of them.

        Args:
            depth: Stage runs between the root and what is kept, at most.

        Returns:
            A graph of those nodes and the edges among them; the artifacts left out are counted.

        """
        distance = {self.root: 0}
        frontier = [self.root]
        before, after = self.before(), self.after()
        while frontier:
            reached = []
            for node in frontier:
                if node != self.root and kind_named(self.nodes[node].type).is_inside:
                    continue
                near = [edge.source for edge in before.get(node, ())]
                near += [edge.target for edge in after.get(node, ())]
                for other in near:
                    cost = distance[node] + (self.nodes[other].kind == "stage")
                    if other not in distance and cost <= depth:
                        distance[other] = cost
                        reached.append(other)
            frontier = reached
        nodes = {name: node for name, node in self.nodes.items() if name in distance}
        edges = tuple(edge for edge in self.edges if edge.source in nodes and edge.target in nodes)
        lost = sum(node.kind == "artifact" for node in self.nodes.values())
        kept = sum(node.kind == "artifact" for node in nodes.values())
        return Graph(self.root, nodes, edges, self.omitted + lost - kept)


def in_order(sources: Mapping[T, Iterable[T]]) -> list[T]:
    """Order keys so that each comes after its sources, as far as that is possible.

    Content addressing makes circles: a filter that drops nothing writes the bytes that it read.

    Args:
        sources: The sources of each key.

    Returns:
        The keys and all sources, each once.

    """
    ordered: dict[T, None] = {}
    entered: set[T] = set()
    stack = [(each, False) for each in reversed(list(sources))]
    while stack:
        each, finished = stack.pop()
        if finished:
            ordered[each] = None
        elif each not in entered:
            entered.add(each)
            stack.append((each, True))
            stack += [(source, False) for source in sources[each] if source not in entered]
    return list(ordered)


def _grouped(pairs: Iterable[tuple[str, Edge]]) -> dict[str, list[Edge]]:
    groups: dict[str, list[Edge]] = {}
    for name, edge in pairs:
        groups.setdefault(name, []).append(edge)
    return groups
