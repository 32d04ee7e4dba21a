"""The project that is looked at: its ledger, its tables, and where the bytes of artifacts lie."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from posttrain.cli.page.catalog import made_artifact
from posttrain.provenance.ledger import ArtifactRecord, Ledger, open_ledger
from posttrain.provenance.lineage.artifacts import Finder, object_folder
from posttrain.provenance.lineage.tables import Table
from posttrain.stage.errors import UserError


@dataclass(frozen=True)
class Project:
    """A project, opened anew for every question: others write to it meanwhile.

    Args:
        root: The project's root.
        ledger_at: Path or URL of its ledger.

    """

    root: Path
    ledger_at: str
    _finding: threading.Lock = field(default_factory=threading.Lock)

    def ledger(self) -> Ledger:
        """Open the ledger.

        Returns:
            A ledger to be closed by `with`.

        Raises:
            UserError: Nothing was ever run here.

        """
        return open_ledger(self.ledger_at, create=False)

    def file(self, record: ArtifactRecord) -> Path | None:
        """Find the bytes of an artifact.

        Args:
            record: As a stage run saw it.

        Returns:
            Where it lies, in the workspace or in DVC's cache; None where it is nowhere.

        """
        # The memory of digests is one file for all threads.
        with self._finding:
            finder = Finder(self.root)
            found = next(
                (place for place in self._likely(record) if _holds(finder, place, record)), None
            )
            # What lies elsewhere is looked for in the folders of all recipes, which takes longer.
            found = found or finder.find(record.path, record.digest, record.md5)
            finder.remember()
        return found

    def _likely(self, record: ArtifactRecord) -> Iterator[Path]:
        """Where an artifact mostly is: as the default recipe has it, and in DVC's cache."""
        yield self.root / record.path
        if record.md5 and not record.md5.endswith(".dir"):
            yield object_folder(self.root) / record.md5[:2] / record.md5[2:]

    def file_in(self, record: ArtifactRecord, name: str) -> Path | None:
        """Find a file of an artifact that is a directory, such as a policy's tokenizer.

        Args:
            record: As a stage run saw it.
            name: The file's name in the directory.

        Returns:
            Where it lies, in the workspace or in DVC's cache; None where it is nowhere.

        """
        folder = self.file(record)
        if folder is not None:
            return folder / name if (folder / name).is_file() else None
        objects = object_folder(self.root)
        listing = objects / (record.md5 or "")[:2] / (record.md5 or "")[2:]
        if not (record.md5 or "").endswith(".dir") or not listing.is_file():
            return None
        for entry in json.loads(listing.read_text(encoding="utf-8")):
            file = objects / str(entry["md5"])[:2] / str(entry["md5"])[2:]
            if entry["relpath"] == name and file.is_file():
                return file
        return None

    def artifact(self, digest: str) -> ArtifactRecord:
        """Look an artifact up.

        Args:
            digest: Hex SHA-256, or its beginning.

        Returns:
            Its record, as it was last made, with the path from the project's root.

        Raises:
            UserError: The ledger knows none.

        """
        with self.ledger() as ledger:
            found = made_artifact(ledger, self.root, digest)
        if found is None:
            raise UserError(f"no stage of this ledger made an artifact {digest[:12]}")
        return found

    def table(self, digest: str) -> tuple[ArtifactRecord, Table]:
        """Open a table.

        Args:
            digest: Hex SHA-256, or its beginning.

        Returns:
            Its record, and what reads its rows.

        Raises:
            UserError: The ledger knows no such table, or its bytes are gone.

        """
        record = self.artifact(digest)
        if not record.path.endswith(".parquet"):
            raise UserError(f"{record.path} is not a table, but a {record.type}")
        file = self.file(record)
        if file is None:
            raise UserError(
                f"the bytes of {record.path} ({record.digest[:12]}) are gone; get them back with:"
                " dvc pull"
            )
        return record, Table(f"{record.type}:{record.digest}", record.path, file)


def _holds(finder: Finder, place: Path, record: ArtifactRecord) -> bool:
    try:
        return place.exists() and finder.digest(place) == record.digest
    except (UserError, OSError):
        return False
