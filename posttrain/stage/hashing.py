"""Digests by kind, and the one spelling in which JSON is hashed."""

import hashlib
import json
from pathlib import Path
from typing import NewType

ArtifactDigest = NewType("ArtifactDigest", str)
"""Hex SHA-256 of an artifact: a file's bytes, or the names and digests of a directory's files."""

WeightsDigest = NewType("WeightsDigest", str)
"""Hex SHA-256 of a model's tensors by name, whatever the files; what tables call a policy."""

CacheName = NewType("CacheName", str)
"""Under which DVC's cache holds an artifact: its MD5, with `.dir` for a directory."""


def canonical_json(value: object) -> str:
    """Write a value with sorted keys and no white space, in ASCII: equal values, equal text.

    >>> canonical_json({"b": [1.5, None], "a": "x"})
    '{"a":"x","b":[1.5,null]}'

    Args:
        value: What JSON can hold.

    Returns:
        The text.

    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def sha256_of_json(value: object) -> str:
    """Hex SHA-256 of a value's canonical JSON."""
    return sha256_of(canonical_json(value))


def sha256_of(content: bytes | str) -> str:
    """Hex SHA-256 of bytes, or of a text in UTF-8."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Hex SHA-256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
