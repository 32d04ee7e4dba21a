"""A graph as text: one module per format."""

from collections.abc import Callable, Mapping

from posttrain.provenance.lineage.render import as_json, mermaid, openlineage, page, tree
from posttrain.provenance.lineage.render.view import View

FORMATS: Mapping[str, Callable[[View], str]] = {
    "tree": tree.render,
    "json": as_json.render,
    "mermaid": mermaid.render,
    "openlineage": openlineage.render,
    "html": page.render,
}

__all__ = ["FORMATS", "View"]
