"""Find the bytes of an artifact: in the workspace if still the same, else in the DVC cache."""

import configparser
from itertools import chain
from pathlib import Path

from posttrain.provenance.ledger.location import STATE_DIR, recipe_folders
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import ArtifactDigest, StatCache, digest_path


class Finder:
    """Looks artifacts up by content; remembers digests so that a second look costs a stat."""

    def __init__(self, root: Path, cache: StatCache | None = None) -> None:
        self._root = root
        self._cache = cache or StatCache.load(root / STATE_DIR / "digests.json")
        self._objects = object_folder(root)

    def find(self, path: str, digest: str, md5: str | None = None) -> Path | None:
        """Find a file or directory by its content.

        Args:
            path: As it was recorded, relative to the recipe's folder.
            digest: SHA-256 that it must have.
            md5: Its name in DVC's cache, where files are looked for, too; directories are not.

        Returns:
            Where it lies; None where it is nowhere.

        """
        # Paths are recorded relative to the recipe's folder.
        is_file = md5 is not None and not md5.endswith(".dir")
        stored = [self._objects / md5[:2] / md5[2:]] if md5 is not None and is_file else []
        places = chain((folder / path for folder in recipe_folders(self._root)), stored)
        return next((place for place in places if self._is(place, digest)), None)

    def remember(self) -> None:
        """Save the digests that were learned."""
        self._cache.save()

    def digest(self, path: Path) -> ArtifactDigest:
        """The digest of what lies at a path now."""
        return digest_path(path, cache=self._cache).sha256

    def _is(self, path: Path, digest: str) -> bool:
        try:
            return path.exists() and self.digest(path) == digest
        except (UserError, OSError):
            return False


def object_folder(root: Path) -> Path:
    """Where DVC keeps files, as its own configuration says, without importing it."""
    config = configparser.ConfigParser()
    dvc = root / ".dvc"
    config.read([dvc / "config", dvc / "config.local"], encoding="utf-8")
    # A relative cache.dir is relative to the file that states it.
    folder = config.get("cache", "dir", fallback="cache")
    return dvc / folder / "files" / "md5"
