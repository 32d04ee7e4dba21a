"""Two runs side by side: which stages differ, in what first, and in which numbers."""

from collections.abc import Mapping
from dataclasses import dataclass

from posttrain.provenance import circumstances
from posttrain.provenance.key import differences
from posttrain.provenance.ledger import ArtifactRecord, Ledger, Run, StageRun


@dataclass(frozen=True)
class ValueChange:
    """One number or artifact in both runs; None where a run does not have it."""

    name: str
    before: float | str | None
    after: float | str | None


@dataclass(frozen=True)
class StageComparison:
    """One stage in two runs. `cause` is the first component of the key that differs."""

    stage: str
    before: StageRun | None
    after: StageRun | None
    cause: str | None
    outputs: tuple[ValueChange, ...]
    metrics: tuple[ValueChange, ...]

    @property
    def same(self) -> bool:
        """True where both runs have the stage, with equal keys, outputs and metrics."""
        both = self.before is not None and self.after is not None
        return both and not (self.cause or self.outputs or self.metrics)


def compare_runs(ledger: Ledger, before: Run, after: Run) -> list[StageComparison]:
    """Compare two runs stage by stage.

    Args:
        ledger: That recorded both.
        before: The one.
        after: The other.

    Returns:
        In the order of `after`; stages that it lacks come last.

    """
    return compare_stages(_last_attempts(ledger, before), _last_attempts(ledger, after))


def compare_stages(
    before: Mapping[str, StageRun], after: Mapping[str, StageRun]
) -> list[StageComparison]:
    """Compare stage runs by stage.

    Args:
        before: The one side, by stage.
        after: The other.

    Returns:
        In the order of `after`; stages that it lacks come last.

    """
    return [_compare(stage, before.get(stage), after.get(stage)) for stage in {**after, **before}]


def _last_attempts(ledger: Ledger, run: Run) -> dict[str, StageRun]:
    return {stage_run.stage: stage_run for stage_run in ledger.stage_runs(run.id)}


def _compare(stage: str, before: StageRun | None, after: StageRun | None) -> StageComparison:
    if before is None or after is None:
        return StageComparison(stage, before, after, None, (), ())
    found = differences(before.components, after.components)
    outputs = _changes(_digests(before.outputs), _digests(after.outputs))
    metrics = _changes(before.metrics, after.metrics)
    cause = found[0].sentence if found else _unexplained(before, after)
    return StageComparison(stage, before, after, cause, outputs, metrics)


def _unexplained(before: StageRun, after: StageRun) -> str | None:
    if before.key == after.key:
        apart = circumstances.differences(before.circumstances, after.circumstances)
        return f"made with {apart[0]}" if apart and _other_bytes(before, after) else None
    return f"key {before.key[:12]} -> {after.key[:12]}"


def _other_bytes(before: StageRun, after: StageRun) -> bool:
    return _digests(before.outputs) != _digests(after.outputs)


def _digests(records: tuple[ArtifactRecord, ...]) -> dict[str, str]:
    return {
        record.role: record.digest[:12] + (f" ({record.rows:,} rows)" if record.rows else "")
        for record in records
    }


def _equal(one: float | str | None, other: float | str | None) -> bool:
    """Two metrics that are not a number are the same outcome."""
    return one == other or (one != one and other != other)  # noqa: PLR0124


def _changes(
    before: Mapping[str, float | str], after: Mapping[str, float | str]
) -> tuple[ValueChange, ...]:
    return tuple(
        ValueChange(name, before.get(name), after.get(name))
        for name in {**after, **before}
        if not _equal(before.get(name), after.get(name))
    )
