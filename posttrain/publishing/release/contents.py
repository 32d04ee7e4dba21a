"""The files of a release, wherever they lie: a folder, an archive, or memory."""

import io
import os
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

from posttrain.stage.errors import UserError
from posttrain.stage.hashing import digest_of_stream, sha256_hasher, sha256_of, sha256_of_file

CLAIMS = "claims.jsonl"
# Everything but the model's own files, the card and the claims lies below this folder.
EVIDENCE = "release"
# Where an identity signed in place of a key pair: its proof, and the key made for the release.
BUNDLE = "claims.sigstore.json"
SIGNER = f"{EVIDENCE}/signer.pub"
_BLOCK = 2**20


class Contents(Protocol):
    """Files by their path in the release."""

    def names(self) -> list[str]:
        """Every path, sorted."""

    def read(self, name: str) -> bytes:
        """The bytes of one file."""

    def sha256(self, name: str) -> str:
        """Hex SHA-256 of one file."""

    def open(self, name: str) -> IO[bytes]:
        """One file as a stream: a model need not fit into memory."""

    def size(self, name: str) -> int:
        """Bytes of one file."""


@dataclass(frozen=True)
class MemoryContents:
    """Files in memory."""

    files: Mapping[str, bytes]

    def names(self) -> list[str]:
        """See `Contents`."""
        return sorted(self.files)

    def read(self, name: str) -> bytes:
        """See `Contents`."""
        return self.files[name]

    def sha256(self, name: str) -> str:
        """See `Contents`."""
        return sha256_of(self.files[name])

    def open(self, name: str) -> IO[bytes]:
        """See `Contents`."""
        return io.BytesIO(self.files[name])

    def size(self, name: str) -> int:
        """See `Contents`."""
        return len(self.files[name])


@dataclass(frozen=True)
class FolderContents:
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

    def read(self, name: str) -> bytes:
        """See `Contents`."""
        return (self.folder / name).read_bytes()

    def sha256(self, name: str) -> str:
        """See `Contents`."""
        return sha256_of_file(self.folder / name)

    def open(self, name: str) -> IO[bytes]:
        """See `Contents`."""
        return (self.folder / name).open("rb")

    def size(self, name: str) -> int:
        """See `Contents`."""
        return (self.folder / name).stat().st_size


@dataclass
class ArchiveContents:
    """Files of an archive, read where they lie."""

    path: Path
    _tar: tarfile.TarFile = field(init=False)
    _members: dict[str, tarfile.TarInfo] = field(init=False)

    def __post_init__(self) -> None:
        try:
            self._tar = tarfile.open(self.path, "r:")  # noqa: SIM115 - closed with the object
            members = self._tar.getmembers()
        except (tarfile.TarError, OSError, ValueError, EOFError) as error:
            raise UserError(f"{self.path} is no archive that can be read: {error}") from None
        self._members = {member.name: member for member in members}

    def names(self) -> list[str]:
        """See `Contents`."""
        return sorted(self._members)

    def read(self, name: str) -> bytes:
        """See `Contents`."""
        with self.open(name) as stream:
            return stream.read()

    def sha256(self, name: str) -> str:
        """See `Contents`."""
        with self.open(name) as stream:
            return digest_of_stream(stream, "sha256").hex()

    def size(self, name: str) -> int:
        """See `Contents`."""
        return self._members[name].size

    def open(self, name: str) -> IO[bytes]:
        """See `Contents`; what is no regular file is empty, and no signed file is."""
        member = self._members[name]
        stream = self._tar.extractfile(member) if member.isreg() else None
        return stream if stream is not None else io.BytesIO()


def write_archive(contents: Contents, target: IO[bytes]) -> None:
    """A tar with nothing of this machine or moment in it: equal files give equal bytes."""
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in contents.names():
            member = tarfile.TarInfo(name)
            member.size, member.mode = contents.size(name), 0o644
            with contents.open(name) as stream:
                tar.addfile(member, stream)


def is_canonical(archive: Path, contents: Contents) -> bool:
    """Return whether the archive has exactly the bytes that packing its files again gives.

    Headers and padding are covered by no digest of a file; this covers them.
    """
    sink = _Hash()
    write_archive(contents, cast("IO[bytes]", sink))
    return sha256_of_file(archive) == sink.hasher.hexdigest()


class _Hash(io.RawIOBase):
    """A file that only hashes what is written."""

    def __init__(self) -> None:
        self.hasher = sha256_hasher()
        self._at = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        self.hasher.update(view)
        self._at += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self._at


def write_folder(contents: Contents, folder: Path) -> None:
    """Write every file below `folder`; a path that leads out of it is refused."""
    for name in contents.names():
        if not _is_inside(name):
            raise UserError(
                f"the release has a file called '{name}', which leads out of its folder"
            )
        target = folder / name
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


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and bool(path.parts)


def walk_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Files below `folder` by relative path, sorted; links are followed, caches are left out."""
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for name in sorted(files):
            path = Path(parent, name)
            yield path.relative_to(folder).as_posix(), path
