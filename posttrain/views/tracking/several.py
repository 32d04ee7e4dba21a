"""Several trackers as one: MLflow with mirrors beside it."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from posttrain.views.tracking.base import CLOSE_SECONDS, Finished, Started, Tracker


class SeveralTrackers(Tracker):
    """Tells each the same. Ids of servers, and the runs to go on in, are those of the first."""

    def __init__(self, first: Tracker, *others: Tracker) -> None:
        self._trackers = (first, *others)
        self._handles: dict[str, list[str]] = {}

    def prepare(self) -> None:
        """See `Tracker`."""
        for tracker in self._trackers:
            tracker.prepare()

    def start(self, started: Started) -> str:
        """See `Tracker`."""
        handle, parents = uuid.uuid4().hex, [None] * len(self._trackers)
        if started.parent is not None:
            parents = [*self._handles[started.parent]]
        self._handles[handle] = [
            tracker.start(replace(started, parent=parent))
            for tracker, parent in zip(self._trackers, parents, strict=True)
        ]
        return handle

    def metrics(self, handle: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        for tracker, own in self._each(handle):
            tracker.metrics(own, step, values)

    def finish(self, handle: str, finished: Finished) -> None:
        """See `Tracker`."""
        for tracker, own in self._each(handle):
            tracker.finish(own, finished)

    def attach(self, run: str, files: Sequence[Path]) -> None:
        """See `Tracker`."""
        for tracker in self._trackers:
            tracker.attach(run, files)

    def external_id(self, handle: str) -> str | None:
        """See `Tracker`."""
        return self._trackers[0].external_id(self._handles[handle][0])

    def when_closed(self, ended: Callable[[], None]) -> None:
        """See `Tracker`."""
        self._trackers[0].when_closed(ended)

    def close(self, *, seconds: float = CLOSE_SECONDS) -> str | None:
        """See `Tracker`; all of them together have so long."""
        end = time.monotonic() + seconds
        said = [
            tracker.close(seconds=max(0.0, end - time.monotonic())) for tracker in self._trackers
        ]
        return "; ".join(filter(None, said)) or None

    def _each(self, handle: str) -> list[tuple[Tracker, str]]:
        return [*zip(self._trackers, self._handles[handle], strict=True)]
