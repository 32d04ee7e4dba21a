"""One spelling and one hash for what an algorithm is, whatever it is called."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from posttrain.learning.algorithms.config import Algorithm
from posttrain.learning.algorithms.preference import PreferenceAlgorithm

AnyAlgorithm = Algorithm | PreferenceAlgorithm

# Digests of different formats are not to be compared: a format names the set of switches there is.
_FORMAT = 1


def switches(algorithm: AnyAlgorithm) -> dict[str, Any]:
    """Every switch, resolved, as plain values; None where another one leaves it without effect."""
    values = algorithm.model_dump(mode="json")
    if isinstance(algorithm, PreferenceAlgorithm):
        return values
    advantage = values["advantage"]
    if advantage["whiten"] == "none":
        advantage["whiten_epsilon"] = None
    if advantage.get("scale") == "none":
        advantage["epsilon"] = None
    return values


def flat(algorithm: AnyAlgorithm) -> dict[str, Any]:
    """The switches by dotted path, sorted: ``{"ratio.low": 0.2, ...}``."""
    return dict(sorted(_leaves(switches(algorithm), ())))


def canonical(algorithm: AnyAlgorithm) -> str:
    """The switches as JSON: keys sorted, no spaces, numbers in their shortest exact spelling."""
    return json.dumps(
        {"format": _FORMAT, **switches(algorithm)},
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    )


def digest(algorithm: AnyAlgorithm) -> str:
    """SHA-256 of `canonical`, 64 hex digits: equal for equal algorithms, in every process."""
    return hashlib.sha256(canonical(algorithm).encode()).hexdigest()


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield ".".join(path), value
        return
    for name, inner in value.items():
        yield from _leaves(inner, (*path, name))
