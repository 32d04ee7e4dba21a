"""The files of a release, wherever they lie: a folder, an archive, or memory.

What is opened here may be an enemy's: nothing is believed before it was looked at, and what is read
into memory has a limit.
"""

import io
import json
import os
import shutil
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from posttrain.publishing.release.archive_entries import MOST_FILES, check_names, entries
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import digest_of_stream, sha256_hasher, sha256_of_file

CLAIMS = "claims.jsonl"
# Everything but the model's own files, the card and the claims lies below this folder.
EVIDENCE = "release"
# Where an identity signed in place of a key pair: its proof, and the key made for the release.
BUNDLE = "claims.sigstore.json"
SIGNER = f"{EVIDENCE}/signer.pub"
MOST_READ = 24 * 2**20
"""Bytes of a file that is read whole; as objects of Python, JSON takes twenty times as many."""
_BLOCK = 2**20


class Contents(ABC):
    """Files by their path in the release."""

    @abstractmethod
    def names(self) -> list[str]:
        """Every path, sorted."""

    @abstractmethod
    def open(self, name: str) -> IO[bytes]:
        """One file as a stream: a model need not fit into memory."""

    @abstractmethod
    def size(self, name: str) -> int:
        """Bytes of one file."""

    def read(self, name: str) -> bytes:
        """The bytes of one file, which is not the model."""
        if self.size(name) > MOST_READ:
            raise UserError(f"{name}: {self.size(name)} bytes are more than {MOST_READ}, the most")
        with self.open(name) as stream:
            return stream.read()

    def evidence(self, name: str) -> Any:
        """One JSON file of the evidence, by its name without ending."""
        return json.loads(self.read(f"{EVIDENCE}/{name}.json"))

    def sha256(self, name: str) -> str:
        """Hex SHA-256 of one file."""
        with self.open(name) as stream:
            return digest_of_stream(stream, "sha256").hex()


@dataclass(frozen=True)
class MemoryContents(Contents):
    """Files in memory."""

    files: Mapping[str, bytes]

    def names(self) -> list[str]:
        """See `Contents`."""
        return sorted(self.files)

    def open(self, name: str) -> IO[bytes]:
        """See `Contents`."""
        return io.BytesIO(self.files[name])

    def size(self, name: str) -> int:
        """See `Contents`."""
        return len(self.files[name])


@dataclass(frozen=True)
class FolderContents(Contents):
    """Files below a folder; links are not followed out of it, they are refused."""

    folder: Path

    def names(self) -> list[str]:
        """See `Contents`."""
        return check_names(self._files())

    def _files(self) -> Iterator[str]:
        count = 0
        for parent, folders, files in os.walk(self.folder, onerror=_cannot_list):
            below = Path(parent).relative_to(self.folder)
            for name in (*folders, *files):
                path = Path(parent, name)
                if path.is_symlink() or not (path.is_dir() or path.is_file()):
                    raise UserError(
                        f"{ascii(str(below / name))} is no regular file; a release has no other"
                    )
            count += len(files)
            if count > MOST_FILES:
                raise UserError(f"{self.folder} has more than {MOST_FILES} files")
            if not (folders or files):
                raise UserError(f"{ascii(str(below))} is an empty folder; a release has none")
            yield from ((below / name).as_posix() for name in files)

    def open(self, name: str) -> IO[bytes]:
        """See `Contents`."""
        return (self.folder / name).open("rb")

    def size(self, name: str) -> int:
        """See `Contents`."""
        return (self.folder / name).stat().st_size


class ArchiveContents(Contents):
    """Files of an archive, read where they lie."""

    def __init__(self, archive: Path | bytes) -> None:
        if isinstance(archive, Path):
            self._stream: IO[bytes] = archive.open("rb")
            self._places = entries(self._stream, archive.name)
        else:
            self._stream = io.BytesIO(archive)
            self._places = entries(self._stream, "it")
        check_names(self._places)

    def names(self) -> list[str]:
        """See `Contents`."""
        return sorted(self._places)

    def open(self, name: str) -> IO[bytes]:
        """See `Contents`."""
        return io.BufferedReader(_Section(self._stream, *self._places[name]), _BLOCK)

    def size(self, name: str) -> int:
        """See `Contents`."""
        return self._places[name][1]


class _Section(io.RawIOBase):
    """Some of the bytes of a stream that others read too."""

    def __init__(self, stream: IO[bytes], start: int, size: int) -> None:
        self._stream, self._at, self._end = stream, start, start + size

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        self._stream.seek(self._at)
        data = self._stream.read(min(len(target), self._end - self._at))
        self._at += len(data)
        target[: len(data)] = data
        return len(data)


def _cannot_list(error: OSError) -> None:
    raise error


def write_archive(contents: Contents, target: IO[bytes]) -> None:
    """A tar with nothing of this machine or moment in it: equal files give equal bytes."""
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for name in contents.names():
            member = tarfile.TarInfo(name)
            member.size, member.mode = contents.size(name), 0o644
            with contents.open(name) as stream:
                tar.addfile(member, stream)


def is_canonical(archive: Path, contents: Contents) -> bool:
    """Return whether the archive has exactly the bytes that packing its files again gives.

    Headers and padding are covered by no digest of a file; this covers them.
    """
    packed = _Hasher()
    write_archive(contents, cast("IO[bytes]", packed))
    return sha256_of_file(archive) == packed.hasher.hexdigest()


class _Hasher:
    """A file that only hashes what is written."""

    def __init__(self) -> None:
        self.hasher = sha256_hasher()

    def write(self, data: bytes) -> int:
        self.hasher.update(data)
        return len(data)


def write_folder(contents: Contents, folder: Path, *, below: str = "") -> None:
    """Write every file whose name begins with `below` into `folder`, by the rest of its name.

    A path that leads out of the folder is refused.
    """
    for name in check_names(contents.names()):
        if name.startswith(below):
            target = folder / name.removeprefix(below)
            target.parent.mkdir(parents=True, exist_ok=True)
            with contents.open(name) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, _BLOCK)


def open_contents(path: Path) -> Contents:
    """A release at `path`: its folder or its archive."""
    if path.is_dir():
        return FolderContents(path)
    if path.is_file():
        return ArchiveContents(path)
    raise UserError(f"there is no release at {path}; name its folder, its archive or its tag")


def pretty(value: object) -> bytes:
    """The bytes of a JSON file that people read: keys sorted, indented; NaN is refused."""
    return (json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()
