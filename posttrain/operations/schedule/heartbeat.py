"""The heartbeat of a run's own process: a file that it touches, which its worker looks at.

A stage is watched by its run. This is for the run itself: stopped, swapped out, or stuck in a call
that holds everything up, it would keep its schedule waiting for ever.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from posttrain.operations.schedule.journal import Tick

ENVIRONMENT = "POSTTRAIN_BEAT"
HUNG_SECONDS = 120.0
_HEARTBEAT_SECONDS = 2.0


def heartbeat_file(root: Path, tick: Tick) -> Path:
    """Return the file that the run of a tick touches, in the project of its worker."""
    return root / ".posttrain" / "services" / "runs" / f"{tick.num}.beat"


@contextmanager
def sending_heartbeats(*, parent: int | None = None) -> Iterator[None]:
    """Touch the file that the environment names; end this process once `parent` is gone."""
    place = os.environ.get(ENVIRONMENT)
    over = threading.Event()

    def touch_regularly() -> None:
        while not over.wait(_HEARTBEAT_SECONDS):
            if place is not None:
                Path(place).touch()
            if parent is not None and os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGTERM)

    if place is not None:
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        Path(place).touch()
    thread = threading.Thread(target=touch_regularly, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if place is not None:
            Path(place).unlink(missing_ok=True)


class Watch:
    """Finds the runs that did not touch their file for `limit` seconds in which it was looked at.

    Time in which the whole machine sleeps is not counted against a run.
    """

    def __init__(
        self, root: Path, limit: float = HUNG_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._root = root
        self.limit = limit
        self._clock = clock
        self._seen: dict[int, tuple[float, float]] = {}

    def hung(self, running: Collection[Tick]) -> list[Tick]:
        """Return those of `running` that are to be stopped; one without a file never began."""
        now = self._clock()
        found = []
        seen = {}
        for tick in running:
            touched = _touched(heartbeat_file(self._root, tick))
            if touched is None:
                continue
            before, since = self._seen.get(tick.num, (touched, now))
            seen[tick.num] = (touched, now if touched != before else since)
            if now - seen[tick.num][1] > self.limit:
                found.append(tick)
        self._seen = seen
        return found


def _touched(place: Path) -> float | None:
    try:
        return place.stat().st_mtime
    except FileNotFoundError:
        return None
