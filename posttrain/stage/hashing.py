"""Digests by kind, and the one spelling in which JSON is hashed: all hashing goes through here."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import IO, NewType

ArtifactDigest = NewType("ArtifactDigest", str)
"""Hex SHA-256 of an artifact: a file's bytes, or the names and digests of a directory's files."""

WeightsDigest = NewType("WeightsDigest", str)
"""Hex SHA-256 of a model's tensors by name, whatever the files; what tables call a policy."""

KeyDigest = NewType("KeyDigest", str)
"""Hex SHA-256 of all that decides whether a stage is up to date: its key."""

CacheName = NewType("CacheName", str)
"""Under which DVC's cache holds an artifact: its MD5, with `.dir` for a directory."""


def canonical_json(value: object, *, finite: bool = True) -> str:
    """Write a value with sorted keys and no white space, in ASCII: equal values, equal text.

    >>> canonical_json({"b": [1.5, None], "a": "x"})
    '{"a":"x","b":[1.5,null]}'

    Args:
        value: What JSON can hold.
        finite: False writes NaN and infinities, which other readers of JSON may not know.

    Returns:
        The text.

    Raises:
        ValueError: A number is not finite, and `finite` asks for it.

    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=not finite)


def sha256_of_json(value: object) -> str:
    """Hex SHA-256 of a value's canonical JSON."""
    return sha256_of(canonical_json(value))


def sha256_of(content: bytes | str) -> str:
    """Hex SHA-256 of bytes, or of a text in UTF-8."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()


def sha256_of_parts(parts: Iterable[bytes]) -> str:
    """Hex SHA-256 of bytes that come part by part, as if they were one."""
    hasher = sha256_hasher()
    for part in parts:
        hasher.update(part)
    return hasher.hexdigest()


def sha256_hasher() -> "hashlib._Hash":
    """Give an object that takes bytes by `update`, for what is written and not read."""
    return hashlib.sha256()


def sha256_of_file(path: Path) -> str:
    """Hex SHA-256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return digest_of_stream(stream, "sha256").hex()


def md5_of_file(path: Path) -> str:
    """Hex MD5 of a file, read in pieces: DVC's name for it."""
    with path.open("rb") as stream:
        return digest_of_stream(stream, "md5").hex()


def digest_of_stream(stream: IO[bytes], algorithm: str) -> bytes:
    """Digest what is left of an open file by an algorithm of hashlib, such as `sha256`."""
    return hashlib.file_digest(stream, algorithm).digest()  # type: ignore[arg-type]


def eight_bytes_of(text: str) -> bytes:
    """BLAKE2b of a text, 8 bytes long: what random numbers are made from, never an identity."""
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
