"""What was read of files and folders, and whether it still is what is there."""

import os
from collections.abc import Collection
from pathlib import Path

from posttrain.stage.hashing import sha256_of, sha256_of_file

Signature = tuple[int, int, int]
"""Time of the last change in nanoseconds, size and inode: another content has another one."""


def signature_of(path: Path | str) -> Signature | None:
    """The signature of a file as it is now; None where there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - asked of hundreds of files before every stage
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class SeenFiles:
    """Remembers the files that were read, and the names in the folders that were searched.

    Args:
        passing: Names that come and go without a meaning.

    """

    def __init__(self, passing: Collection[str] = ()) -> None:
        self._passing = frozenset({"__pycache__", *passing})
        self._files: dict[Path, tuple[Signature | None, str]] = {}
        self._folders: dict[Path, tuple[Signature | None, frozenset[str]]] = {}

    def read(self, path: Path) -> bytes:
        """Read a file, and remember what it held."""
        signature = signature_of(path)
        content = path.read_bytes()
        self._files[path] = (signature, sha256_of(content))
        return content

    def digest(self, path: Path) -> str:
        """Digest a file, once."""
        if path not in self._files:
            signature = signature_of(path)
            self._files[path] = (signature, sha256_of_file(path))
        return self._files[path][1]

    def search(self, folder: Path) -> None:
        """Remember what lies in a folder."""
        if folder not in self._folders:
            self._folders[folder] = (signature_of(folder), self._listed(folder))

    def signature(self, path: Path) -> Signature | None:
        """The signature that a file had when it was read; None where it was not."""
        known = self._files.get(path)
        return None if known is None else known[0]

    def is_current(self) -> bool:
        """Whether every file holds what it held, and no name came or went."""
        # Lists, as another thread may come to read more meanwhile.
        for path, (signature, digest) in [*self._files.items()]:
            now = signature_of(path)
            if now != signature:
                if now is None or sha256_of_file(path) != digest:
                    return False
                self._files[path] = (now, digest)
        for folder, (signature, names) in [*self._folders.items()]:
            now = signature_of(folder)
            if now != signature:
                if now is None or self._listed(folder) != names:
                    return False
                self._folders[folder] = (now, names)
        return True

    def _listed(self, folder: Path) -> frozenset[str]:
        names = frozenset(os.listdir(folder)) - self._passing  # noqa: PTH208 - names alone
        return frozenset(name for name in names if not name.startswith("."))
