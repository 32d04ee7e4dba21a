"""What a gate is, what it decides by, and what it says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from posttrain.provenance.ledger import ArtifactRecord, Ledger
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.publishing.release.chain import Chain
from posttrain.publishing.release.inputs import OutsideInput, outside_inputs
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

    def inputs(self) -> list[OutsideInput]:
        """What came in from outside, with its licenses."""

        def find(record: ArtifactRecord) -> Path | None:
            return self.finder.find(record.path, record.digest, record.md5)

        return outside_inputs(self.chain.stages, self.licenses, find)

    def find(self, record: ArtifactRecord) -> Path:
        """The bytes of an artifact, checked against its digest."""
        found = self.finder.find(record.path, record.digest, record.md5)
        if found is None:
            raise UserError(
                f"{record.path} ({record.digest[:12]}) is in neither the workspace nor the cache; "
                "dvc pull it, or posttrain run"
            )
        return found


@dataclass(frozen=True)
class StoredEvidence:
    """What a release itself holds of the evidence, so that others can decide by it again."""

    results: Results
    compared: Mapping[str, Results]
    """By gate, the results of the policy that it compared with."""
    metrics: Mapping[str, float]
    """What the stages recorded."""
    inputs: Sequence[OutsideInput]
    level: str
    """Of reproducibility, as declared."""


class Gate(StageConfig):
    """What all gates have: a name, by which a refusal and the signed result call it."""

    name: str = Field(min_length=1)

    def passes(self, figures: Mapping[str, float]) -> bool:
        """Return whether figures, which are those of a decision, pass."""
        raise NotImplementedError

    def judge_again(self, stored: StoredEvidence, stated: Mapping[str, float]) -> GateResult:  # noqa: ARG002
        """Decide by what a release holds; by the stated figures where they came of more than it."""
        return GateResult(self.passes(stated), "", stated)

    def check(self, evidence: Evidence) -> GateResult:
        """Decide by what is to be released."""
        raise NotImplementedError
