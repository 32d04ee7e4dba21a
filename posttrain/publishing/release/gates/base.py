"""What a gate is, what it decides by, and what it says."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from posttrain.provenance.ledger import ArtifactRecord, Ledger
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.publishing.release.chain import Chain
from posttrain.publishing.release.results import Results
from posttrain.stage.config import StageConfig
from posttrain.stage.errors import UserError


@dataclass(frozen=True)
class GateResult:
    """The outcome of a gate: passed or not, the rule in words, and its figures."""

    passed: bool
    rule: str
    figures: Mapping[str, float]
    remedy: str = ""


@dataclass(frozen=True)
class Evidence:
    """Everything that a gate is decided by; `parent_results` is None for a first release."""

    chain: Chain
    ledger: Ledger
    finder: Finder
    results: Results
    licenses: Mapping[str, str]
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


class Gate(StageConfig):
    """What all gates have: a name, by which a refusal and the signed result call it."""

    name: str = Field(min_length=1)

    def check(self, evidence: Evidence) -> GateResult:
        """Decide by what is to be released."""
        raise NotImplementedError
