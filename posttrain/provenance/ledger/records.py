"""What the ledger remembers: runs, stage runs, artifacts and their parts, marks put on them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from posttrain.stage.hashing import ArtifactDigest, CacheName, KeyDigest

StageStatus = Literal["succeeded", "failed", "stopped", "cached", "restored"]
RunStatus = Literal["running", "succeeded", "failed", "stopped", "killed"]

# Statuses after which the outputs of a key are known to be good.
PROVEN: tuple[StageStatus, ...] = ("succeeded", "restored")
# Statuses after which the stage's outputs are in place.
DONE: tuple[StageStatus, ...] = ("succeeded", "cached", "restored")


@dataclass(frozen=True)
class ArtifactRecord:
    """One artifact as a stage run saw it.

    `role` is the port's name, `digest` the hex SHA-256, `size` in bytes, `rows` for tables only,
    `producer` the stage that made it (None for a file from outside the DAG), `md5` the name under
    which the DVC cache holds the bytes; the ledger fills it in wherever it was ever told.
    """

    role: str
    type: str
    path: str
    digest: ArtifactDigest
    size: int
    rows: int | None = None
    producer: str | None = None
    md5: CacheName | None = None


def worked_seconds(started: float, ended: float, timings: Mapping[str, float]) -> float:
    """Compute how long a stage itself took: without the start of its process and its imports.

    Args:
        started: When it was begun, in epoch seconds.
        ended: When it was over.
        timings: Seconds by phase, as in `StageRun`; without those of its process nothing is taken
            off.

    Returns:
        Seconds; 0 where a clock was set back meanwhile.

    """
    at_work = timings.get("stage.run", math.inf) + timings.get("stage.verify", 0.0)
    starting = max(0.0, timings.get("execute", 0.0) - at_work)
    return max(0.0, ended - started - starting)


@dataclass(frozen=True)
class StageRun:
    """One execution, or one reuse, of a stage. Times are UTC epoch seconds, `timings` are seconds.

    `components` says what the key was made of: group (code, params, inputs ...) -> name -> value.
    `circumstances` are what may decide its bytes beside the key, such as the processor, of the
    process that executed it: `posttrain.provenance.circumstances` has their names.
    """

    id: str
    run_id: str
    stage: str
    task: str
    key: KeyDigest
    status: StageStatus
    started: float
    ended: float
    components: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    inputs: tuple[ArtifactRecord, ...] = ()
    outputs: tuple[ArtifactRecord, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    host: str = ""
    log_path: str = ""
    error: str | None = None
    attempt: int = 1
    mlflow_run_id: str | None = None
    circumstances: Mapping[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """How long the stage itself took; see `worked_seconds`."""
        return worked_seconds(self.started, self.ended, self.timings)


@dataclass(frozen=True)
class Run:
    """One invocation of a recipe. A run whose process is gone reads as killed.

    `actor` is who began it, where that is known; so of releases and recalls.
    """

    id: str
    recipe: str
    started: float
    command: str = ""
    ended: float | None = None
    status: RunStatus = "running"
    git_commit: str | None = None
    git_dirty: bool = False
    mlflow_run_id: str | None = None
    prefect_run_id: str | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    actor: str | None = None


@dataclass(frozen=True)
class Composition:
    """An artifact and what it carries inside: its tokenizer and template, or its verifiers.

    A part is an artifact of its own, by the digest of what makes it behave as it does; whatever
    holds it descends from it.
    """

    whole: ArtifactRecord
    parts: tuple[ArtifactRecord, ...]


@dataclass(frozen=True)
class Release:
    """A named set of artifacts; `statement` is the digest of what was signed about it."""

    tag: str
    created: float
    members: tuple[ArtifactRecord, ...]
    git_commit: str | None = None
    statement: str | None = None
    actor: str | None = None


@dataclass(frozen=True)
class Recall:
    """Somebody found an artifact bad, or took such a finding back (`withdrawn`).

    `predicate` limits it to the rows of a table for which that SQL expression holds; `cleared` are
    digests of later tables that were then found to hold no row made from those.
    """

    id: str
    digest: ArtifactDigest
    reason: str
    recalled: float
    predicate: str | None = None
    withdrawn: bool = False
    cleared: tuple[str, ...] = ()
    actor: str | None = None


@dataclass(frozen=True)
class Verification:
    """Somebody ran it again: `subject` is a run or a stage run, `level` what was asked of it.

    `details` are the figures that it was decided by.
    """

    subject: str
    level: str
    holds: bool
    verified: float
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Adoption:
    """A result was taken over from under another key, without running the stage again.

    Args:
        subject: Id of the stage run that was recorded for it.
        source: Id of the stage run that made the bytes.
        reason: Why the result holds under today's key, in a sentence.
        adopted: UTC epoch seconds.
        differences: Sentences on what a person took over `anyway`; empty where nothing differs.

    """

    subject: str
    source: str
    reason: str
    adopted: float
    differences: tuple[str, ...] = ()
