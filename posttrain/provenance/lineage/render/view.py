"""What a renderer gets, and the words for a node that all of them share."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from posttrain.provenance.ledger import Ledger
from posttrain.provenance.lineage.graph import Graph, Node
from posttrain.stage.formatting import bytesize, counted, duration, number

Direction = Literal["up", "down"]

# The metrics by which a stage is known; without one of these, the alphabet decides.
_TELLING = (
    "pass_at_1", "reward", "accuracy", "heldout_nll", "solve_rate", "verified_fraction", "loss",
)  # fmt: skip


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
        return [node.name, *lines, *([bytesize(float(size))] if size else [])]
    if node.kind == "release":
        return []
    how = "adopted" if "adopted from" in node.facts else took(node)
    return [how, *first_metrics(node.metrics)]


def took(node: Node) -> str:
    """How long a stage ran."""
    return duration(float(node.facts["seconds"] or 0))


def first_metrics(metrics: Mapping[str, float], count: int = 3) -> list[str]:
    """Choose the most telling metrics.

    Args:
        metrics: Value by name.
        count: How many of them.

    Returns:
        Name and number, rounded for a person.

    """
    chosen = sorted(metrics, key=_telling)[:count]
    return [f"{name} {_figure(metrics[name])}" for name in chosen]


def _figure(value: float) -> str:
    """A metric that is no number must not pass for one that is not there."""
    return number(value) if math.isfinite(value) else str(value)


def is_telling(metric: str) -> bool:
    """Say whether a stage is known by this metric.

    >>> is_telling("evaluate/rl/pass_at_1"), is_telling("evaluate/rl/mean_length")
    (True, False)

    Args:
        metric: Its whole name.

    Returns:
        Whether its last part is one of the telling ones.

    """
    return metric.rpartition("/")[2] in _TELLING


def _telling(metric: str) -> int:
    last = metric.rpartition("/")[2]
    return _TELLING.index(last) if last in _TELLING else len(_TELLING)


def omission(graph: Graph) -> str:
    """A sentence about what a limit left out, or nothing."""
    if not graph.omitted:
        return ""
    return f"{graph.omitted:,} more artifacts are not shown; see --limit and --depth"
