"""What a renderer gets, and the words for a node that all of them share."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from posttrain.lineage.graph import Graph, Node
from posttrain.pipeline.ledger import Ledger

Direction = Literal["up", "down"]
_UNITS = ("B", "kB", "MB", "GB", "TB")


@dataclass(frozen=True)
class View:
    """A graph, the side of its root that the question was about, and where to look things up."""

    graph: Graph
    direction: Direction
    ledger: Ledger
    root: Path


def caption(node: Node) -> str:
    """What kind of thing it is, and which one."""
    if node.kind == "artifact":
        return f"{node.type} {node.title}"
    return node.title if node.kind == "stage" else f"release {node.name}"


def details(node: Node) -> list[str]:
    """Path, rows and bytes of an artifact; duration and metrics of a stage."""
    if node.kind == "artifact":
        rows, size = node.facts["rows"], node.facts["bytes"]
        lines = [counted(int(rows), "row")] if rows is not None else []
        return [node.name, *lines, _size(float(size or 0))]
    if node.kind == "release":
        return []
    return [f"{node.facts['seconds']:g} s", *first_metrics(node.metrics)]


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it must be."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def first_metrics(metrics: Mapping[str, float], count: int = 3) -> list[str]:
    """The first few metrics, shortened to four digits."""
    return [f"{name} {value:.4g}" for name, value in list(metrics.items())[:count]]


def _size(number: float) -> str:
    for unit in _UNITS[:-1]:
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} {_UNITS[-1]}"


def omission(graph: Graph) -> str:
    """A sentence about what a limit left out, or nothing."""
    if not graph.omitted:
        return ""
    return f"{graph.omitted:,} more artifacts are not shown; see --limit and --depth"
