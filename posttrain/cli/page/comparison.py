"""What differs between two runs: recipe, code, data, metrics, environment."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.provenance.key import Difference, differences
from posttrain.provenance.ledger import ArtifactRecord, Ledger, Run, StageRun
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.provenance.lineage.compare import StageComparison, compare_runs
from posttrain.publishing.changes import changes_between, state_of_run
from posttrain.views.report.changes import MetricChange

_ENVIRONMENT = ("packages", "runtime", "rules")


@dataclass(frozen=True)
class ChangedValue:
    """A value that differs, and the stages in which it does."""

    name: str
    before: str | None
    after: str | None
    stages: tuple[str, ...]


@dataclass(frozen=True)
class ChangedTable:
    """An artifact that both runs made, with other bytes, or that one of them did not make."""

    stage: str
    role: str
    before: ArtifactRecord | None
    after: ArtifactRecord | None

    @property
    def is_table(self) -> bool:
        """Whether its rows can be compared."""
        both = (self.before, self.after)
        # The rows of a curve have no ids.
        return all(each is not None and _has_ids(each) for each in both)


def _has_ids(record: ArtifactRecord) -> bool:
    return record.path.endswith(".parquet") and record.type != "curve"


@dataclass(frozen=True)
class ChangedMetric:
    """A figure that differs, by the name that its stage gave it."""

    metric: str
    change: MetricChange


@dataclass(frozen=True)
class RunComparison:
    """Two runs side by side."""

    stages: Sequence[StageComparison]
    recipe: Sequence[ChangedValue]
    code: Sequence[ChangedValue]
    inputs: Sequence[ChangedValue]
    environment: Sequence[ChangedValue]
    artifacts: Sequence[ChangedTable]
    metrics: Sequence[ChangedMetric]
    remarks: Sequence[str]
    """What could not be paired by problem, and why."""

    @property
    def num_equal(self) -> int:
        """Stages that are the same in both."""
        return sum(each.same for each in self.stages)


def side_by_side(ledger: Ledger, root: Path, before: Run, after: Run) -> RunComparison:
    """Compare two runs.

    Args:
        ledger: That recorded both.
        root: The project, where the samples of evaluations lie.
        before: The one.
        after: The other.

    Returns:
        What differs, each value once with the stages in which it does.

    """
    stages = compare_runs(ledger, before, after)
    both = [(each.before, each.after) for each in stages]
    pairs = [(old, new) for old, new in both if old is not None and new is not None]
    found = [
        (new.stage, difference)
        for old, new in pairs
        for difference in differences(old.components, new.components)
    ]
    surroundings = [*found, *_circumstances(pairs)]
    moved = changes_between(state_of_run(ledger, before), state_of_run(ledger, after), Finder(root))
    measured = {name for sides in both for each in sides if each for name in each.metrics}
    return RunComparison(
        stages=stages,
        recipe=[
            ChangedValue(f"{stage}.{each.name}", each.before, each.after, (stage,))
            for stage, each in found
            if each.component == "params"
        ],
        code=_gathered(found, "code"),
        inputs=[
            ChangedValue(f"{stage}.{each.name}", each.before, each.after, (stage,))
            for stage, each in found
            if each.component == "inputs"
        ],
        environment=_gathered(surroundings, *_ENVIRONMENT, "circumstances"),
        artifacts=[change for old, new in both for change in _artifacts(old, new)],
        metrics=[ChangedMetric(_full_name(each, measured), each) for each in moved.metrics],
        remarks=moved.remarks,
    )


def _full_name(change: MetricChange, measured: Collection[str]) -> str:
    """The name under which a metric was recorded: a change leaves out that of its stage."""
    full = f"{change.stage}/{change.name}"
    return full if full in measured else change.name


def _gathered(found: Iterable[tuple[str, Difference]], *components: str) -> list[ChangedValue]:
    """The same change of several stages once."""
    stages: dict[tuple[str, str | None, str | None], list[str]] = {}
    for stage, each in found:
        if each.component in components:
            stages.setdefault((each.name, each.before, each.after), []).append(stage)
    return [ChangedValue(*change, tuple(where)) for change, where in stages.items()]


def _circumstances(
    pairs: Iterable[tuple[StageRun, StageRun]],
) -> Iterator[tuple[str, Difference]]:
    for old, new in pairs:
        yield from (
            (new.stage, Difference("circumstances", name, before, after))
            for name, before, after in _changed(
                {**old.circumstances, "host": old.host}, {**new.circumstances, "host": new.host}
            )
        )


def _changed(
    before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[tuple[str, str | None, str | None]]:
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield name, before.get(name), after.get(name)


def _artifacts(before: StageRun | None, after: StageRun | None) -> Iterator[ChangedTable]:
    old = {each.role: each for each in before.outputs} if before else {}
    new = {each.role: each for each in after.outputs} if after else {}
    stage = (after or before).stage if after or before else ""  # type: ignore[union-attr]
    for role in {**new, **old}:
        one, other = old.get(role), new.get(role)
        if one is None or other is None or one.digest != other.digest:
            yield ChangedTable(stage, role, one, other)
