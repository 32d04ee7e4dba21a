"""One spelling of a JSON value, so that equal values have equal bytes and digests."""

import json

from posttrain.stage.hashing import canonical_json


def canonical(value: object) -> bytes:
    """Keys sorted, no white space, ASCII; a number that is none (NaN, infinity) is refused."""
    return canonical_json(value).encode()


def pretty(value: object) -> bytes:
    """The same for files that people read: sorted and indented."""
    return (json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def public_path(path: str) -> str:
    """A path without what it says of one machine."""
    return path.rpartition("/")[2] if path.startswith("/") else path
