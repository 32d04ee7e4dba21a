"""Settings laid over others: a recipe's over a method's, a change over a preset's."""

from collections.abc import Mapping
from typing import Any

_CHOOSES = ("kind", "preset")
"""Fields that choose a part: its other fields belong to that part alone."""


def laid_over(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay settings over others, field by field.

    Mappings that both have are laid over each other in the same way, but for a part of another
    kind: it takes the place of the lower one whole, whose fields it does not have.

    >>> laid_over({"steps": 9, "optimization": {"learning_rate": 1e-4}}, {"steps": 3})
    {'steps': 3, 'optimization': {'learning_rate': 0.0001}}
    >>> laid_over({"part": {"kind": "a", "x": 1}}, {"part": {"kind": "b"}})
    {'part': {'kind': 'b'}}
    >>> laid_over({"part": {"kind": "a", "x": 1}}, {"part": "a"})
    {'part': {'kind': 'a', 'x': 1}}

    Args:
        under: What holds where the other says nothing.
        over: What goes before it; a null counts as said.

    Returns:
        New settings; neither of the two is changed.

    """
    laid = dict(under)
    for name, value in over.items():
        below = laid.get(name)
        if isinstance(value, Mapping) and isinstance(below, Mapping) and _same(below, value):
            laid[name] = laid_over(below, value)
        elif isinstance(below, Mapping) and value is not None and value == below.get("kind"):
            # A kind alone is short for {kind: ...}, and chooses the part that is there.
            continue
        else:
            laid[name] = value
    return laid


def _same(under: Mapping[str, Any], over: Mapping[str, Any]) -> bool:
    """True where the upper mapping chooses no other part than the lower one."""
    return all(name not in over or over[name] == under.get(name) for name in _CHOOSES)
