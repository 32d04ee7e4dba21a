"""What gates may look at: the chain, the ledger, the bytes, and the results of the parent."""

from dataclasses import dataclass
from pathlib import Path

from posttrain.provenance.ledger import ArtifactRecord, Ledger
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.publishing.release.chain import Chain
from posttrain.publishing.release.config import ReleaseConfig
from posttrain.publishing.release.results import Results
from posttrain.stage.errors import UserError


@dataclass(frozen=True)
class Evidence:
    """Everything that a gate is decided by; `parent_results` is None for a first release."""

    config: ReleaseConfig
    chain: Chain
    ledger: Ledger
    finder: Finder
    results: Results
    parent: str | None = None
    parent_results: Results | None = None

    def find(self, record: ArtifactRecord) -> Path:
        """The bytes of an artifact, checked against its digest."""
        found = self.finder.find(record.path, record.digest, record.md5)
        if found is None:
            raise UserError(
                f"{record.path} ({record.digest[:12]}) is in neither the workspace nor the cache; "
                "dvc pull it, or posttrain run"
            )
        return found
