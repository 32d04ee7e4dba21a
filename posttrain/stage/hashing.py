"""Digests by kind, and the one spelling in which JSON is hashed: all hashing goes through here."""

import contextlib
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NewType, Self

from posttrain.stage.errors import UserError
from posttrain.stage.files import replacing

ArtifactDigest = NewType("ArtifactDigest", str)
"""Hex SHA-256 of an artifact: a file's bytes, or the names and digests of a directory's files."""

WeightsDigest = NewType("WeightsDigest", str)
"""Hex SHA-256 of a model's tensors by name, whatever the files; what tables call a policy."""

KeyDigest = NewType("KeyDigest", str)
"""Hex SHA-256 of all that decides whether a stage is up to date: its key."""

CacheName = NewType("CacheName", str)
"""Under which DVC's cache holds an artifact: its MD5, with `.dir` for a directory."""

# A file written in the same clock tick as it was hashed can change again without a visible
# change of its mtime; git calls this "racy clean". Where times are kept finer than milliseconds a
# tick is one of the kernel's, at most 10 ms; two seconds covers the coarsest clocks (FAT).
_FINE_NS, _TICK_NS, _COARSE_TICK_NS = 1_000_000, 20_000_000, 2_000_000_000


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


def sorted_json(value: object, *, ascii_only: bool = True, as_text: bool = False) -> str:
    """Write a value with sorted keys and Python's white space.

    For digests that projects have recorded in this spelling: of tokenizers, templates, verifiers,
    requests and watched rows. A new digest takes that of `canonical_json`.

    >>> sorted_json({"b": 1, "a": ["x", None]})
    '{"a": ["x", null], "b": 1}'

    Args:
        value: What JSON can hold.
        ascii_only: False leaves letters outside of ASCII as they are.
        as_text: True writes what JSON cannot hold, such as a time, as its text.

    Returns:
        The text.

    """
    default = str if as_text else None
    return json.dumps(value, sort_keys=True, ensure_ascii=ascii_only, default=default)


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


def md5_of_file(path: Path) -> CacheName:
    """Hex MD5 of a file, read in pieces: DVC's name for it."""
    with path.open("rb") as stream:
        return CacheName(digest_of_stream(stream, "md5").hex())


def git_name_of_file(path: Path) -> str:
    """Hex SHA-1 by which git names a file's content, and the Hugging Face hub its small files."""
    content = path.read_bytes()
    hasher = hashlib.sha1(b"blob %d\0" % len(content), usedforsecurity=False)
    hasher.update(content)
    return hasher.hexdigest()


def digest_of_stream(stream: IO[bytes], algorithm: str) -> bytes:
    """Digest what is left of an open file.

    Args:
        stream: Opened for reading bytes; read to its end.
        algorithm: A name that `hashlib` knows, such as `sha256`.

    Returns:
        The raw digest; 32 bytes of `sha256`.

    """
    return hashlib.file_digest(stream, algorithm).digest()  # type: ignore[arg-type]


def eight_bytes_of(text: str) -> bytes:
    """BLAKE2b of a text, 8 bytes long: what random numbers are made from, never an identity."""
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


@dataclass(frozen=True)
class Digest:
    """Content of a file or directory: hex SHA-256, bytes in total, number of files."""

    sha256: ArtifactDigest
    size: int
    files: int


@dataclass
class StatCache:
    """Remembers (path, size, times, inode) -> SHA-256 in one JSON file, read and saved whole.

    Of the times one is that of the last change of the inode, which nobody can set. Losing the file,
    or two processes saving at once, costs a re-hash and nothing else.
    """

    path: Path
    entries: dict[str, tuple[int, int, int, int, str]] = field(default_factory=dict)
    changed: bool = False

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the cache; a missing or damaged file is an empty cache."""
        try:
            raw = json.loads(path.read_bytes())
            return cls(path, {name: (*map(int, row[:4]), row[4]) for name, row in raw.items()})
        except (OSError, ValueError, AttributeError, IndexError, TypeError, KeyError):
            return cls(path)

    def save(self) -> None:
        """Write the cache by atomic rename, if anything was learned and the place takes it."""
        if not self.changed:
            return
        # Read-only, or full: it saves time and nothing else.
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.path) as partial:
                partial.write_text(json.dumps(self.entries, separators=(",", ":")))
        self.changed = False

    def get(self, path: str, status: os.stat_result) -> str | None:
        """Look up a hash that was remembered.

        Args:
            path: Absolute, as it was given to `put`.
            status: Of the file now.

        Returns:
            SHA-256 in hex; None where size, times or inode changed since, or nothing is known.

        """
        entry = self.entries.get(path)
        return entry[4] if entry is not None and entry[:4] == _signature(status) else None

    def put(self, path: str, status: os.stat_result, sha256: str, *, hashed_ns: int) -> None:
        """Remember a hash, unless the file was too young to be trusted.

        Args:
            path: Absolute.
            status: Of the file before it was hashed.
            sha256: Of its bytes, in hex.
            hashed_ns: When hashing began, in nanoseconds since 1970. A file written within one tick
                of its file system's clock before that could change again with the same mtime.

        """
        fine = status.st_mtime_ns % _FINE_NS != 0
        if hashed_ns - status.st_mtime_ns > (_TICK_NS if fine else _COARSE_TICK_NS):
            self.entries[path] = (*_signature(status), sha256)
            self.changed = True

    def moved(self, source: Path, target: Path) -> None:
        """Let what is known of a file or folder go with it when it is renamed.

        Args:
            source: Where it was.
            target: Where it is now.

        """
        before, after = (os.path.abspath(path) for path in (source, target))  # noqa: PTH100 - as `_file`
        for name in [n for n in list(self.entries) if n == before or n.startswith(before + os.sep)]:
            self.entries[after + name[len(before) :]] = self.entries.pop(name)
            self.changed = True

    def settled(self, path: Path) -> None:
        """Let what is known of a file or folder stand after its inodes were changed, and no byte.

        To rename or to link a file is such a change: whoever did it knows that it was no other.

        Args:
            path: Where it is.

        """
        there = os.path.abspath(path)  # noqa: PTH100 - as `_file`
        for name in [n for n in self.entries if n == there or n.startswith(there + os.sep)]:
            *known, _, sha256 = self.entries[name]
            try:
                now = _signature(Path(name).stat())
            except (FileNotFoundError, NotADirectoryError):
                # A folder that took another's place need not have all of its files and folders.
                del self.entries[name]
                self.changed = True
                continue
            if list(now[:3]) == known:
                self.entries[name] = (*now, sha256)
                self.changed = True


def digest_path(path: Path, *, cache: StatCache | None = None) -> Digest:
    """Digest a file (its bytes) or a directory (its sorted relative paths and their digests).

    The directory's digest is the SHA-256 of one line ``relpath NUL sha256 LF`` per file, sorted by
    the bytes of the POSIX relative path. Nothing is ignored; empty directories do not count.

    Args:
        path: File or directory.
        cache: What is known of files that have not changed since; None reads every byte.

    Returns:
        The digest, with the number of bytes and of files.

    Raises:
        UserError: There is nothing at the path, or a link to a directory.

    """
    try:
        status = path.stat()
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist; restore it, or run the stage that makes it"
        ) from None
    if not stat.S_ISDIR(status.st_mode):
        return Digest(ArtifactDigest(_file(path, status, cache)), status.st_size, 1)
    if path.is_symlink():
        raise UserError(f"{path} is a link to a directory; put the directory itself there")
    files = _walk(path, b"")
    digest = digest_of_files((name, _file(file, found, cache)) for name, file, found in files)
    return Digest(digest, sum(found.st_size for _, _, found in files), len(files))


def digest_of_files(digests: Iterable[tuple[bytes, str]]) -> ArtifactDigest:
    """Digest a directory by the relative paths of its files, in bytes, and their digests."""
    lines = sorted(b"%b\0%b\n" % (name, digest.encode()) for name, digest in digests)
    return ArtifactDigest(sha256_of_parts(lines))


def _walk(directory: Path, prefix: bytes) -> list[tuple[bytes, Path, os.stat_result]]:
    """Every file below `directory`: relative POSIX path as bytes, path, and status behind links."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            name = prefix + os.fsencode(entry.name)
            if entry.is_dir(follow_symlinks=False):
                found += _walk(Path(entry.path), name + b"/")
            elif entry.is_dir():
                raise UserError(
                    f"{entry.path} is a link to a directory; put the directory itself there"
                )
            else:
                found.append((name, Path(entry.path), Path(entry.path).stat()))
    return found


def _file(path: Path, status: os.stat_result, cache: StatCache | None) -> str:
    """SHA-256 of one regular file, from memory where that is safe."""
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path} is not a regular file; only files and directories can be tracked")
    name = os.path.abspath(path)  # noqa: PTH100 - resolve() would follow links into the DVC cache
    remembered = cache.get(name, status) if cache is not None else None
    if remembered is not None:
        return remembered
    started = time.time_ns()
    sha256 = sha256_of_file(path)
    if cache is not None and _signature(path.stat()) == _signature(status):
        cache.put(name, status, sha256, hashed_ns=started)
    return sha256


def _signature(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns
