"""What a report is made from: the records of the stages, and the artifacts that lie there."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.provenance.ledger.records import ArtifactRecord, StageRun
from posttrain.stage.formatting import duration
from posttrain.stage.spec import ArtifactKind

_WORDS = {"succeeded": "ran", "cached": "up to date"}


@dataclass(frozen=True)
class StageFacts:
    """One stage of the run: its record, and the seconds that the execution behind it took."""

    record: StageRun
    seconds: float

    @property
    def name(self) -> str:
        """The stage's name in the recipe."""
        return self.record.stage

    @property
    def reads(self) -> list[str]:
        """The stages that it reads from, and the files from outside."""
        return list(dict.fromkeys(each.producer or each.path for each in self.record.inputs))

    @property
    def state(self) -> str:
        """What happened to it, and how long the execution behind it took."""
        status = self.record.status
        return f"{_WORDS.get(status, status)} ({duration(self.seconds)})"


@dataclass(frozen=True)
class FoundArtifact:
    """An artifact that is there to be read."""

    stage: str
    output: ArtifactRecord
    path: Path

    @property
    def name(self) -> str:
        """`stage.output`, as the recipe names it."""
        return f"{self.stage}.{self.output.role}"


def found(
    stages: Sequence[StageFacts], artifacts: Mapping[str, Path], kind: ArtifactKind
) -> Iterator[FoundArtifact]:
    """The artifacts of a type, in the order of the stages; those without a path are left out.

    `artifacts` maps `stage.output` to where it lies.
    """
    for stage in stages:
        for output in stage.record.outputs:
            path = artifacts.get(f"{stage.name}.{output.role}")
            if output.type == kind and path is not None and path.exists():
                yield FoundArtifact(stage.name, output, path)
