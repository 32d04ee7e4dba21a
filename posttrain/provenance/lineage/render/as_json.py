"""The graph as one JSON object."""

import json
import math
from dataclasses import asdict
from typing import Any

from posttrain.provenance.lineage.graph import Node
from posttrain.provenance.lineage.render.view import View


def render(view: View) -> str:
    """Nodes nearest to the root first, edges in the order of making."""
    graph = view.graph
    body = {
        "root": graph.root,
        "direction": view.direction,
        "omitted_artifacts": graph.omitted,
        "nodes": [as_object(node) for node in graph.nodes.values()],
        "edges": [asdict(edge) for edge in graph.edges],
    }
    return json.dumps(body, indent=2, allow_nan=False) + "\n"


def as_object(node: Node) -> dict[str, Any]:
    """One node in JSON types; a metric that is no finite number becomes null."""
    metrics = {
        name: value if math.isfinite(value) else None for name, value in node.metrics.items()
    }
    return {**asdict(node), "title": node.title, "metrics": metrics}
