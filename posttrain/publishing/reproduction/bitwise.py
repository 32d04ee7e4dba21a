"""L0: run every stage again, and compare every output by its digest."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from posttrain.pipeline.execution.session import Session
from posttrain.provenance.ledger import StageRun
from posttrain.publishing.reproduction.mirror import Mirror
from posttrain.publishing.reproduction.project import last_run, run_recipe
from posttrain.publishing.reproduction.restore import Restorer
from posttrain.publishing.reproduction.subject import Subject


@dataclass(frozen=True)
class OutputComparison:
    """One output: its recorded digest, and that of what came out now; None where it failed."""

    stage: str
    path: str
    recorded: str
    again: str | None

    @property
    def equal(self) -> bool:
        """Return whether they are the same bytes."""
        return self.recorded == self.again


def run_again(session: Session, subject: Subject, folder: Path) -> list[OutputComparison]:
    """Every output of every stage, each stage run on exactly the inputs that it had.

    The whole recipe runs first. Where a stage made other bytes, those after it were given another
    input: they run once more by themselves, so that only the stage at fault is found.
    """
    mirror = Mirror(session, folder / "project")
    restore = Restorer(session.workspace.root, folder)
    records = subject.records
    made: dict[str, StageRun] = {}
    if records.keys() == session.dag.stages.keys():
        run_recipe(mirror.root, mirror.recipe)
        made = last_run(mirror.root)
    compared: list[OutputComparison] = []
    for name in (name for name in session.dag.order() if name in records):
        again = made.get(name)
        if again is None or _inputs(again) != _inputs(records[name]):
            again = _alone(mirror, restore, records[name])
        compared += _compare(records[name], again)
    return compared


def _alone(mirror: Mirror, restore: Restorer, record: StageRun) -> StageRun | None:
    """One stage, on its recorded inputs; None where it fails."""
    place_inputs(mirror, restore, record)
    if run_recipe(mirror.root, mirror.recipe, "--only", record.stage):
        return None
    return last_run(mirror.root).get(record.stage)


def place_inputs(mirror: Mirror, restore: Restorer, record: StageRun) -> None:
    """Put what other stages made for this one where it will read it."""
    for artifact in record.inputs:
        if artifact.producer is not None:
            restore.place(artifact, mirror.output(artifact.path))


def _inputs(run: StageRun) -> dict[str, str]:
    return {record.role: record.digest for record in run.inputs}


def _compare(recorded: StageRun, again: StageRun | None) -> Iterator[OutputComparison]:
    finished = again is not None and again.status != "failed"
    made = {each.role: each.digest for each in again.outputs} if again and finished else {}
    for each in recorded.outputs:
        yield OutputComparison(recorded.stage, each.path, each.digest, made.get(each.role))
