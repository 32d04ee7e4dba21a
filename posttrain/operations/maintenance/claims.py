"""What the ledger knows that the cache must keep: releases, pins, best and last runs, live ones."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from posttrain.operations.maintenance.pins import pinned
from posttrain.provenance.ledger import Ledger, Run, StageRun
from posttrain.provenance.ledger.records import PROVEN
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.hashing import ArtifactDigest


@dataclass(frozen=True)
class Keep:
    """What a user wants to keep beside what must be kept."""

    last: int = 3
    best: int = 0
    metrics: tuple[str, ...] = ()
    lowest: bool = False


@dataclass
class Claims:
    """Object -> reasons in their order of weight, and when each was last used."""

    reasons: dict[str, dict[str, None]] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    live: list[Run] = field(default_factory=list)
    kept_runs: set[str] = field(default_factory=set)

    def claim(self, md5: str | None, reason: str) -> None:
        """Note one more reason to keep an object."""
        if md5 is not None:
            self.reasons.setdefault(md5, {})[reason] = None


def claims_of(ledger: Ledger, keep: Keep) -> Claims:
    """Everything that the ledger says for keeping objects."""
    runs = ledger.runs()
    claims = Claims(live=[run for run in runs if run.status == "running"])
    stage_runs = list(ledger.every_stage_run())
    for run in stage_runs:
        _note(claims, run)
    digests = {r.digest: r.md5 for run in stage_runs for r in (*run.inputs, *run.outputs) if r.md5}
    for release in ledger.annotations.releases():
        for member in release.members:
            claims.claim(member.md5 or digests.get(member.digest), f"release {release.tag}")
    for digest, name in pinned(ledger).items():
        claims.claim(digests.get(ArtifactDigest(digest)), f"pinned: {name}")
    live = {run.id for run in claims.live}
    # A live run goes on from what its recipe made last, whatever else is asked for.
    at_work = {run.recipe for run in claims.live}
    for reason, chosen in (
        ("a run is under way", live),
        ("a run under way starts from it", _last(runs, 1, at_work)),
        (f"one of the last {keep.last} runs", _last(runs, keep.last, {r.recipe for r in runs})),
    ):
        claims.kept_runs |= chosen
        _claim_all(claims, (run for run in stage_runs if run.run_id in chosen), reason)
    for metric in keep.metrics:
        best = _best(stage_runs, metric, keep)
        claims.kept_runs |= {run.run_id for run in best}
        _claim_all(claims, best, f"best {keep.best} by {metric}")
    return claims


def _note(claims: Claims, run: StageRun) -> None:
    for record in (*run.inputs, *run.outputs):
        if record.md5 is not None:
            claims.used[record.md5] = max(run.ended, claims.used.get(record.md5, 0.0))
            claims.types[record.md5] = record.type
            claims.names[record.md5] = record.path


def _claim_all(claims: Claims, runs: Iterable[StageRun], reason: str) -> None:
    for run in runs:
        for record in (*run.inputs, *run.outputs):
            claims.claim(record.md5, reason)


def _last(runs: Sequence[Run], count: int, recipes: set[str]) -> set[str]:
    """The newest finished runs of each recipe; `runs` come newest first."""
    chosen: set[str] = set()
    for recipe in recipes:
        own = [run.id for run in runs if run.recipe == recipe and run.status != "running"]
        chosen |= set(own[:count])
    return chosen


def _best(runs: Sequence[StageRun], metric: str, keep: Keep) -> list[StageRun]:
    """The `keep.best` executions with the best value of a metric, one for each key."""
    stage, _, name = metric.partition("/")
    found = dict(_measured(runs, metric, None)) or dict(_measured(runs, name, stage))
    if not found:
        known = {each for run in runs for each in run.metrics}
        raise UserError(f"no run in the ledger has the metric '{metric}'{nearest(metric, known)}")
    by_key = {run.key: run for run in runs if run.id in found}
    sign = 1 if keep.lowest else -1
    ranked = sorted(by_key.values(), key=lambda run: (sign * found[run.id], -run.started))
    return ranked[: keep.best]


def _measured(
    runs: Sequence[StageRun], metric: str, stage: str | None
) -> Iterator[tuple[str, float]]:
    for run in runs:
        value = run.metrics.get(metric)
        fits = stage in (None, run.stage) and run.status in PROVEN
        if value is not None and fits and math.isfinite(value):
            yield run.id, value
