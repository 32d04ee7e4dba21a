"""The pipeline as a picture: stages in layers, joined where one feeds another."""

from collections.abc import Mapping, Sequence, Set

from markupsafe import Markup

from posttrain.stage.formatting import duration
from posttrain.views.report.facts import StageFacts
from posttrain.views.report.svg import element

_NODE_WIDTH, _NODE_HEIGHT = 132, 44
_GAP_X, _GAP_Y, _EDGE = 20, 30, 8

Graph = Mapping[str, Set[str]]


def draw(stages: Sequence[StageFacts]) -> Markup:
    """Draw the stages; an edge that a longer way implies is left out."""
    parents = reduced(_parents(stages))
    layers = layered(parents)
    if not layers:
        return Markup("")
    widest = max(len(layer) for layer in layers)
    width = widest * (_NODE_WIDTH + _GAP_X) - _GAP_X + 2 * _EDGE
    height = len(layers) * (_NODE_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _EDGE
    spots = {}
    for row, layer in enumerate(layers):
        left = (width - len(layer) * (_NODE_WIDTH + _GAP_X) + _GAP_X) / 2
        for column, name in enumerate(layer):
            x = left + column * (_NODE_WIDTH + _GAP_X)
            spots[name] = (x, _EDGE + row * (_NODE_HEIGHT + _GAP_Y))
    edges = [_edge(spots[up], spots[name]) for name in parents for up in sorted(parents[name])]
    nodes = [_node(stage, *spots[stage.name]) for stage in stages]
    return element(
        "svg",
        *edges,
        *nodes,
        class_="dag",
        viewBox=f"0 0 {width:g} {height:g}",
        style=f"max-width:{width:g}px",
        role="img",
        aria_label="pipeline",
    )


def _parents(stages: Sequence[StageFacts]) -> dict[str, set[str]]:
    names = {stage.name for stage in stages}
    return {
        stage.name: {i.producer for i in stage.record.inputs if i.producer in names}
        for stage in stages
    }


def reduced(parents: Graph) -> dict[str, set[str]]:
    """Without the edges that a longer way implies."""
    above: dict[str, set[str]] = {}

    def ancestors(name: str) -> set[str]:
        if name not in above:
            above[name] = set(parents[name]).union(*(ancestors(up) for up in parents[name]))
        return above[name]

    return {
        name: {up for up in ups if not any(up in ancestors(other) for other in ups)}
        for name, ups in parents.items()
    }


def layered(parents: Graph) -> list[list[str]]:
    """Stages by the longest way to them, each layer in the order of its parents' places."""
    depth: dict[str, int] = {}

    def depth_of(name: str) -> int:
        if name not in depth:
            depth[name] = 1 + max((depth_of(up) for up in parents[name]), default=-1)
        return depth[name]

    layers: list[list[str]] = [[] for _ in range(1 + max(map(depth_of, parents), default=-1))]
    for name in parents:
        layers[depth[name]].append(name)
    places: dict[str, float] = {}
    for layer in layers:
        middle = {name: _mean([places[up] for up in parents[name]]) for name in layer}
        layer.sort(key=lambda name: middle[name])
        places.update((name, index - (len(layer) - 1) / 2) for index, name in enumerate(layer))
    return layers


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _edge(start: tuple[float, float], stop: tuple[float, float]) -> Markup:
    x1, y1 = start[0] + _NODE_WIDTH / 2, start[1] + _NODE_HEIGHT
    x2, y2 = stop[0] + _NODE_WIDTH / 2, stop[1]
    bend = (y2 - y1) / 2
    path = f"M{x1:g} {y1:g}C{x1:g} {y1 + bend:g} {x2:g} {y2 - bend:g} {x2:g} {y2:g}"
    return element("path", class_="edge", d=path)


def _node(stage: StageFacts, x: float, y: float) -> Markup:
    status = stage.record.status
    tip = f"{stage.name}: key {stage.record.key[:12]}"
    middle = x + _NODE_WIDTH / 2
    return element(
        "g",
        element("rect", x=x, y=y, width=_NODE_WIDTH, height=_NODE_HEIGHT, rx=8),
        element("text", stage.name, class_="name", x=middle, y=y + 19, text_anchor="middle"),
        element("text", state(stage), class_="state", x=middle, y=y + 35, text_anchor="middle"),
        class_=f"node {status}",
        data_tip=tip,
    )


def state(stage: StageFacts) -> str:
    """What happened to a stage, and how long the execution behind it took."""
    words = {"succeeded": "ran", "cached": "up to date", "restored": "restored", "failed": "failed"}
    took = duration(stage.seconds)
    return f"{words[stage.record.status]} ({took})"
