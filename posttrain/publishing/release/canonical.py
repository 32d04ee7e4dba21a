"""One spelling of a JSON value, so that equal values have equal bytes and digests."""

import hashlib
import json


def canonical(value: object) -> bytes:
    """Keys sorted, no white space, ASCII; a number that is none (NaN, infinity) is refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def pretty(value: object) -> bytes:
    """The same for files that people read: sorted and indented."""
    return (json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()


def sha256_of(value: object) -> str:
    """Hex SHA-256 of the canonical bytes."""
    return hashlib.sha256(canonical(value)).hexdigest()


def sha256(data: bytes) -> str:
    """Hex SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def public_path(path: str) -> str:
    """A path without what it says of one machine."""
    return path.rpartition("/")[2] if path.startswith("/") else path
