"""A tracker that keeps everything: for tests, and for runs that want no tracking."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from posttrain.views.tracking.base import Finished, Started, Tracker


@dataclass
class TrackedRun:
    """What was said of one run or stage."""

    started: Started
    steps: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    finished: Finished | None = None


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
