"""Find the bytes of an artifact: in the workspace if still the same, else in the DVC cache."""

import configparser
from collections.abc import Iterator
from pathlib import Path

from posttrain.stage.errors import UserError
from posttrain.stage.hashing import StatCache, digest_path


class Finder:
    """Looks artifacts up by content; remembers digests so that a second look costs a stat."""

    def __init__(self, root: Path, cache: StatCache) -> None:
        self._root = root
        self._cache = cache
        self._objects = object_folder(root)

    def find(self, path: str, digest: str, md5: str | None = None) -> Path | None:
        """A file or directory with exactly this digest, or None where there is none."""
        for candidate in self._candidates(path):
            if candidate.exists() and self._digest(candidate) == digest:
                return candidate
        if md5 is None or md5.endswith(".dir"):
            return None
        cached = self._objects / md5[:2] / md5[2:]
        return cached if cached.exists() and self._digest(cached) == digest else None

    def remember(self) -> None:
        """Save the digests that were learned."""
        self._cache.save()

    def _digest(self, path: Path) -> str | None:
        try:
            return digest_path(path, cache=self._cache).sha256
        except (UserError, OSError):
            return None

    def _candidates(self, path: str) -> Iterator[Path]:
        """Paths are recorded relative to the recipe's folder."""
        yield self._root / path
        yield from (folder / path for folder in sorted(self._root.glob("recipes/*")))


def object_folder(root: Path) -> Path:
    """Where DVC keeps files, as its own configuration says, without importing it."""
    config = configparser.ConfigParser()
    dvc = root / ".dvc"
    config.read([dvc / "config", dvc / "config.local"], encoding="utf-8")
    # A relative cache.dir is relative to the file that states it.
    folder = config.get("cache", "dir", fallback="cache")
    return dvc / folder / "files" / "md5"
