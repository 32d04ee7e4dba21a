"""The files of a release, wherever they lie: a folder, an archive, or memory."""

import io
import json
import shutil
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from posttrain.stage.errors import UserError
from posttrain.stage.hashing import digest_of_stream, sha256_hasher, sha256_of_file

CLAIMS = "claims.jsonl"
# Everything but the model's own files, the card and the claims lies below this folder.
EVIDENCE = "release"
# Where an identity signed in place of a key pair: its proof, and the key made for the release.
BUNDLE = "claims.sigstore.json"
SIGNER = f"{EVIDENCE}/signer.pub"
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
        """The bytes of one file."""
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
        found = []
        for path in self.folder.rglob("*"):
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise UserError(f"{path} is no regular file; a release holds nothing else")
            if path.is_file():
                found.append(path.relative_to(self.folder).as_posix())
        return sorted(found)

    def open(self, name: str) -> IO[bytes]:
        """See `Contents`."""
        return (self.folder / name).open("rb")

    def size(self, name: str) -> int:
        """See `Contents`."""
        return (self.folder / name).stat().st_size


class ArchiveContents(Contents):
    """Files of an archive, read where they lie."""

    def __init__(self, path: Path) -> None:
        try:
            self._tar = tarfile.open(path, "r:")  # noqa: SIM115 - closed with the object
            members = self._tar.getmembers()
        except (tarfile.TarError, OSError, ValueError, EOFError) as error:
            raise UserError(f"{path} is no archive that can be read: {error}") from None
        self._members = {member.name: member for member in members}

    def names(self) -> list[str]:
        """See `Contents`."""
        return sorted(self._members)

    def open(self, name: str) -> IO[bytes]:
        """See `Contents`; what is no regular file is empty, and no signed file is."""
        member = self._members[name]
        stream = self._tar.extractfile(member) if member.isreg() else None
        return stream if stream is not None else io.BytesIO()

    def size(self, name: str) -> int:
        """See `Contents`."""
        return self._members[name].size


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
    for name in contents.names():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise UserError(
                f"the release has a file called '{name}', which leads out of its folder"
            )
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
