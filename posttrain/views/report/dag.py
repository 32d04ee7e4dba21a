"""The pipeline as a picture: stages in layers, joined where one feeds another."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from graphlib import TopologicalSorter
from statistics import fmean

from posttrain.views.report.facts import StageFacts
from posttrain.views.report.templates import template

_NODE_WIDTH, _NODE_HEIGHT = 132, 44
_GAP_X, _GAP_Y, _EDGE = 20, 30, 8

DagEdges = Mapping[str, Set[str]]


@dataclass(frozen=True)
class Drawing:
    """Nodes as (stage, left, top), edges as (x1, y1, x2, y2), in pixels."""

    width: float
    height: float
    nodes: Sequence[tuple[StageFacts, float, float]]
    edges: Sequence[tuple[float, float, float, float]]

    def __html__(self) -> str:
        """Return the picture, as templates ask for it."""
        return str(template("charts.html").module.dag(self, _NODE_WIDTH, _NODE_HEIGHT))


def draw_dag(stages: Sequence[StageFacts]) -> Drawing:
    """Lay the stages out; an edge that a longer way implies is left out."""
    facts = {stage.name: stage for stage in stages}
    parents = reduced(
        {
            name: {each.producer for each in stage.record.inputs if each.producer in facts}
            for name, stage in facts.items()
        }
    )
    layers = layered(parents)
    widest = max(map(len, layers), default=0)
    width = widest * (_NODE_WIDTH + _GAP_X) - _GAP_X + 2 * _EDGE
    height = len(layers) * (_NODE_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _EDGE
    spots = {}
    for row, layer in enumerate(layers):
        left = (width - len(layer) * (_NODE_WIDTH + _GAP_X) + _GAP_X) / 2
        for column, name in enumerate(layer):
            x = left + column * (_NODE_WIDTH + _GAP_X)
            spots[name] = (x, _EDGE + row * (_NODE_HEIGHT + _GAP_Y))
    half = _NODE_WIDTH / 2
    edges = [
        (spots[up][0] + half, spots[up][1] + _NODE_HEIGHT, spots[name][0] + half, spots[name][1])
        for name in parents
        for up in sorted(parents[name])
    ]
    return Drawing(width, height, [(stage, *spots[stage.name]) for stage in stages], edges)


def reduced(parents: DagEdges) -> dict[str, set[str]]:
    """Without the edges that a longer way implies."""
    above: dict[str, set[str]] = {}
    for name in TopologicalSorter(parents).static_order():
        above[name] = set(parents[name]).union(*(above[up] for up in parents[name]))
    return {
        name: {up for up in ups if not any(up in above[other] for other in ups)}
        for name, ups in parents.items()
    }


def layered(parents: DagEdges) -> list[list[str]]:
    """Stages by the longest way to them, each layer in the order of its parents' places."""
    sorter = TopologicalSorter(parents)
    sorter.prepare()
    order = {name: index for index, name in enumerate(parents)}
    layers: list[list[str]] = []
    places: dict[str, float] = {}
    while ready := sorter.get_ready():
        middle = {name: fmean([places[up] for up in parents[name]] or [0.0]) for name in ready}
        layer = sorted(ready, key=lambda name: (middle[name], order[name]))
        places.update((name, index - (len(layer) - 1) / 2) for index, name in enumerate(layer))
        layers.append(layer)
        sorter.done(*layer)
    return layers
