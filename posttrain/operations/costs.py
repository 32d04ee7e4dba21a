"""What stages, runs and releases took: time, energy, tokens, and money at the stated rates."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from posttrain.provenance.ledger import Ledger, StageRun
from posttrain.provenance.ledger.usage import Usage, total_usage, usage_by_stage_run
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.stage.spec import ArtifactKind

_LENGTH = "mean_length"


@dataclass(frozen=True)
class StageCost:
    """What one stage of a run took, and what the execution behind its outputs took."""

    stage: str
    status: str
    attempts: int
    """Executions in this run; 0 where it was reused."""
    usage: Usage | None
    """Of all attempts in this run; None where it was reused, or nobody counted."""
    behind: Usage | None
    """Of the execution that made the outputs, whenever that was; None where nobody counted."""
    tokens: int | None
    """Drawn by the policy in that execution; None where what it made does not tell."""


def costs_of_stages(ledger: Ledger, records: Sequence[StageRun], finder: Finder) -> list[StageCost]:
    """Gather what stages took.

    Args:
        ledger: That has the records.
        records: Of a run, in their order; of a stage that was tried again, every attempt.
        finder: Finds tables of rollouts, by which drawn tokens are counted.

    Returns:
        One for each stage.

    """
    usages = usage_by_stage_run(ledger.annotations)
    by_stage: dict[str, list[StageRun]] = {}
    for record in records:
        by_stage.setdefault(record.stage, []).append(record)
    return [_cost_of(ledger, usages, attempts, finder) for attempts in by_stage.values()]


def _cost_of(
    ledger: Ledger, usages: Mapping[str, Usage], attempts: Sequence[StageRun], finder: Finder
) -> StageCost:
    last = attempts[-1]
    own = [usages[each.id] for each in attempts if each.id in usages]
    maker = last if last.status == "succeeded" else ledger.history.executed(last.key)
    behind = usages.get(maker.id) if maker is not None else None
    executed = sum(each.status in ("succeeded", "failed", "stopped") for each in attempts)
    return StageCost(
        last.stage,
        last.status,
        executed,
        total_usage(own) if own else None,
        behind,
        None if maker is None else tokens_drawn(maker, finder),
    )


def tokens_drawn(record: StageRun, finder: Finder) -> int | None:
    """Count the tokens that a stage's policies drew.

    Args:
        record: The stage run.
        finder: Finds its rollouts.

    Returns:
        Of rollouts, each token by its log-probability; of samples, their mean length times their
        number. None where it made neither, or its rollouts are not here. What a teacher or a judge
        behind an endpoint drew is not in it.

    """
    counted = [*_of_rollouts(record, finder), *_of_samples(record)]
    return round(sum(counted)) if counted else None


def _of_rollouts(record: StageRun, finder: Finder) -> Iterator[float]:
    for output in record.outputs:
        if output.type != ArtifactKind.ROLLOUTS:
            continue
        path = finder.find(output.path, output.digest, output.md5)
        if path is not None:
            import polars as pl

            table = pl.scan_parquet(path)
            if "logprobs" in table.collect_schema():
                yield float(table.select(pl.col("logprobs").list.len().sum()).collect().item())


def _of_samples(record: StageRun) -> Iterator[float]:
    """Mean lengths are metrics, one for each policy that was sampled as often as the others."""
    lengths = [value for name, value in record.metrics.items() if name.endswith(f"/{_LENGTH}")]
    rows = [each.rows for each in record.outputs if each.type == ArtifactKind.COMPLETIONS]
    if lengths and len(rows) == 1:
        yield sum(lengths) / len(lengths) * float(rows[0] or 0)
