"""What the pipeline tells a tracker. It is written, and never read back for a decision."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from posttrain.provenance.ledger.records import ArtifactRecord, Run, StageRun

Status = Literal["running", "succeeded", "failed", "stopped", "killed"]

CLOSE_SECONDS = 60.0
"""How long a tracker may take at the end of a run: its server may not answer."""


@dataclass(frozen=True)
class Started:
    """The start of a run, or of a stage where `parent` is the id of its run.

    `at` is in UTC epoch seconds, for a replay; None is now. `resumes` is the external id of the
    killed attempt that this one goes on from: its metrics go to that run, each step once. `record`
    is what the ledger keeps, and `places` says where inputs lie, by digest, as far as known.
    `folder` is that of a run's recipe, from the project's root.
    """

    name: str
    parent: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, object] = field(default_factory=dict)
    inputs: tuple[ArtifactRecord, ...] = ()
    at: float | None = None
    resumes: str | None = None
    record: Run | StageRun | None = None
    places: Mapping[str, Path] = field(default_factory=dict)
    folder: str = "."


@dataclass(frozen=True)
class Finished:
    """The end of a run or stage: its final metrics and what it made.

    `record` is what the ledger keeps, and `places` says where outputs lie, by digest, as far as
    known.
    """

    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[ArtifactRecord, ...] = ()
    at: float | None = None
    record: Run | StageRun | None = None
    places: Mapping[str, Path] = field(default_factory=dict)


class Tracker(ABC):
    """A view of runs for people. Nothing blocks or raises: trouble is said once."""

    def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Get ready beside what the caller does: a stage will run, if nothing is in its way."""

    @abstractmethod
    def start(self, started: Started) -> str:
        """Open a run or a stage; return an id of the tracker's own, known at once."""

    @abstractmethod
    def metrics(self, handle: str, step: int, values: Mapping[str, float]) -> None:
        """Take the metrics of one step; they are buffered."""

    @abstractmethod
    def finish(self, handle: str, finished: Finished) -> None:
        """Close a run or a stage."""

    def attach(self, run: str, files: Sequence[Path]) -> None:  # noqa: B027 - most show figures only
        """Show files beside a run that was started, also after it is finished.

        Args:
            run: The ledger's id of the run.
            files: They stay where they are, and the tracker may copy them.

        """

    def external_id(self, handle: str) -> str | None:
        """The id that the tracking server gave to a run or stage, once it is known."""
        return None

    def when_closed(self, ended: Callable[[], None]) -> None:  # noqa: B027 - nothing is outside
        """Call `ended` once every external id is known; never, where there are none."""

    def close(self, *, seconds: float = CLOSE_SECONDS) -> str | None:
        """Write what is buffered, for at most so long; say it if something was not written."""
        return None


@dataclass
class TrackedRun:
    """What was said of one run or stage."""

    started: Started
    steps: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    finished: Finished | None = None
    files: tuple[Path, ...] = ()


class MemoryTracker(Tracker):
    """Remembers every call, in order; the id is the name and a number."""

    def __init__(self) -> None:
        self.runs: dict[str, TrackedRun] = {}

    def start(self, started: Started) -> str:
        """See `Tracker`."""
        handle = f"{started.name}-{len(self.runs)}"
        self.runs[handle] = TrackedRun(started)
        return handle

    def metrics(self, handle: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        self.runs[handle].steps.append((step, dict(values)))

    def finish(self, handle: str, finished: Finished) -> None:
        """See `Tracker`."""
        self.runs[handle].finished = finished

    def attach(self, run: str, files: Sequence[Path]) -> None:
        """See `Tracker`."""
        for each in self.runs.values():
            if each.started.tags.get("posttrain.run") == run:
                each.files += tuple(files)
