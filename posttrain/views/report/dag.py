"""The pipeline as a picture: stages, joined where one feeds another."""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

from markupsafe import Markup

from posttrain.views.charts.chart import in_script
from posttrain.views.report.facts import StageFacts

DagEdges = Mapping[str, Set[str]]


@dataclass(frozen=True)
class Drawing:
    """What the drawer of lineage graphs is given: nodes, and edges by the places of nodes."""

    nodes: Sequence[Mapping[str, Any]]
    edges: Sequence[tuple[int, int, str]]

    def __html__(self) -> str:
        """Return the place of the picture with what is drawn there, as templates ask for it."""
        if not self.nodes:
            return ""
        text = in_script(json.dumps({"nodes": self.nodes, "edges": self.edges}))
        return Markup(
            '<svg class="dag" role="img" aria-label="pipeline"></svg>'
            '<script type="application/json">{}</script>'
        ).format(Markup(text))


def draw_dag(stages: Sequence[StageFacts]) -> Drawing:
    """Say what is joined; an edge that a longer way implies is left out."""
    facts = {stage.name: stage for stage in stages}
    parents = reduced(
        {
            name: {each.producer for each in stage.record.inputs if each.producer in facts}
            for name, stage in facts.items()
        }
    )
    places = {name: place for place, name in enumerate(facts)}
    edges = [(places[up], places[name], "") for name in parents for up in sorted(parents[name])]
    return Drawing([_node(stage) for stage in stages], edges)


def _node(stage: StageFacts) -> Mapping[str, Any]:
    return {
        "heading": stage.name,
        "lines": [stage.state],
        "style": stage.record.status,
        "round": 8,
        "caption": f"{stage.name}, {stage.state}",
        "hint": f"{stage.name}: {stage.state}, key {stage.record.key[:12]}",
    }


def reduced(parents: DagEdges) -> dict[str, set[str]]:
    """Without the edges that a longer way implies."""
    above: dict[str, set[str]] = {}
    for name in TopologicalSorter(parents).static_order():
        above[name] = set(parents[name]).union(*(above[up] for up in parents[name]))
    return {
        name: {up for up in ups if not any(up in above[other] for other in ups)}
        for name, ups in parents.items()
    }
