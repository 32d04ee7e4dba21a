"""One spelling and one hash for what an algorithm or a whole method is, whatever it is called.

Only what changes the mathematics and is not at its default is hashed (`stage.identity`), so a
switch, a section or a kind more renames nothing. What is hashed says what it is of: an algorithm of
RL, one on pairs, or the whole config of an RL stage with its sampling and its updates.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from posttrain.learning.algorithms.digests_format_1 import FORMAT_1
from posttrain.stage.config import StageConfig
from posttrain.stage.hashing import canonical_json, sha256_of
from posttrain.stage.identity import identity

_FORMAT = 2
_DIGEST = re.compile("[0-9a-f]{8,64}")


@runtime_checkable
class Identified(Protocol):
    """A `StageConfig` that says what its identity is of."""

    IDENTITY_OF: ClassVar[str]


def resolved(config: StageConfig) -> dict[str, Any]:
    """Every field as plain values; None where another one leaves it without effect."""
    values = config.model_dump(mode="json")
    for name in type(config).model_fields:
        inner = getattr(config, name)
        if name in config.without_effect():
            values[name] = None
        elif isinstance(inner, StageConfig):
            values[name] = resolved(inner)
        elif isinstance(inner, Mapping):
            of_parts = {k: resolved(v) for k, v in inner.items() if isinstance(v, StageConfig)}
            values[name] = {**values[name], **of_parts}
    return values


def flat(config: StageConfig) -> dict[str, Any]:
    """The fields by dotted path, sorted: `{"surrogate.low": 0.2, ...}`."""
    return dict(sorted(_leaves(resolved(config), ())))


def canonical(config: Identified) -> str:
    """The identity as JSON: keys sorted, no spaces, numbers in their shortest exact spelling."""
    assert isinstance(config, StageConfig)
    return canonical_json({"format": _FORMAT, "of": config.IDENTITY_OF, **identity(config)})


def digest(config: Identified) -> str:
    """SHA-256 of `canonical`, 64 hex digits: equal for equal mathematics, in every process."""
    return sha256_of(canonical(config))


def name_by_digest(text: str, known: Mapping[str, Identified]) -> str | None:
    """Find the name whose digest, of today's format or of format 1, begins with `text`.

    Args:
        text: At least eight hexadecimal digits; anything else is no digest.
        known: The algorithms by name.

    Returns:
        The name, or None where no digest begins so.

    """
    if not _DIGEST.fullmatch(text):
        return None
    # Of several that share an algorithm the first: methods that play set it up alike.
    digests = {digest(each): name for name, each in reversed(list(known.items()))} | FORMAT_1
    return next((name for found, name in digests.items() if found.startswith(text)), None)


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict) or not value:
        yield ".".join(path), value
        return
    for name, inner in value.items():
        yield from _leaves(inner, (*path, name))
