"""Bring recorded bytes back: from the workspace where they still lie, else from the DVC cache."""

import shutil
from pathlib import Path

from posttrain.provenance.dvc import DvcStore
from posttrain.provenance.ledger import ArtifactRecord
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import StatCache, digest_path


class Restorer:
    """Finds artifacts in place or brings them into a temporary folder, checked by digest."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._folder = folder
        self._finder = Finder(root)
        self._store = DvcStore(root, root)

    def __call__(self, artifact: ArtifactRecord, name: str | None = None) -> Path:
        """Where the artifact's bytes are; refuses where they are nowhere."""
        found = self._finder.find(artifact.path, artifact.digest, artifact.md5)
        if found is not None:
            return found
        out = self._folder / (name or artifact.role)
        if artifact.md5 is not None and self._store.restore(out, artifact.md5):
            cache = StatCache.load(self._folder / "digests.json")
            if digest_path(out, cache=cache).sha256 == artifact.digest:
                return out
        raise UserError(
            f"the bytes of {artifact.path} ({artifact.digest[:12]}) are neither in the workspace"
            " nor in the DVC cache; `dvc fetch` them, or name a run whose artifacts are kept"
        )

    def place(self, artifact: ArtifactRecord, target: Path) -> None:
        """Put a copy of the artifact at `target`, whatever was there."""
        if target.is_dir():
            shutil.rmtree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        found = self(artifact, f"{artifact.digest[:16]}{target.suffix}")
        copy = shutil.copytree if found.is_dir() else shutil.copyfile
        copy(found, target)
