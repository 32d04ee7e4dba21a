"""A view whose operations are queued, and written by a process, off the pipeline's path.

Importing mlflow takes seconds, and so does creating its database; both happen in that process. It
starts with the first stage, or where one is foreseen: a run in which nothing runs never starts it.
"""

import queue
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from posttrain.views.tracking.base import CLOSE_SECONDS, Finished, Started, Tracker
from posttrain.views.tracking.writer_process import Operation, WriterFailed, WriterProcess

_FLUSH_SECONDS = 3.0
_EXIT_SECONDS = 5.0
_FLUSH: Operation = ("flush", ())
_NO_ANSWER = re.compile(r"API request to (https?://[^/\s]+)\S* failed with exception")


class QueuedTracker(Tracker):
    """Hands everything to a writer in a process of its own.

    If it fails, what follows is dropped; `on_problem` hears of it at once, `close` says it.
    """

    title: str
    """What people call it."""
    writer: str
    """Module and function that open the writer, with a colon between."""
    remedy: str
    """Ends the sentence about a failure: what becomes of what was not written."""

    def __init__(
        self,
        state: Path,
        *,
        uri: str | None = None,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        """Nothing is started yet.

        Args:
            state: State directory of the project.
            uri: Where the view is kept; None leaves it to the writer.
            on_problem: Hears of a failure when it happens.

        """
        self._state = state.resolve()
        self._uri = uri
        self._on_problem = on_problem
        self._operations: queue.SimpleQueue[Operation | None] = queue.SimpleQueue()
        self._external: dict[str, str] = {}
        self._thread: threading.Thread | None = None
        self._awake = threading.Event()
        self._stages = False
        self._process: WriterProcess | None = None
        self._problem: str | None = None
        self._when_closed: list[Callable[[], None]] = []

    def prepare(self) -> None:
        """See `Tracker`: the process comes up, and writes nothing before a stage begins."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name=self.title, daemon=True)
            self._thread.start()

    def start(self, started: Started) -> str:
        """See `Tracker`. Only a stage wakes the writer: a run without any is not worth a row."""
        handle = uuid.uuid4().hex
        moment = started.at or time.time()
        self._put("start", handle, started, moment)
        if started.parent is not None:
            self._stages = True
            self._awake.set()
            self.prepare()
        return handle

    def metrics(self, handle: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        moment, copy = time.time(), dict(values)
        self._put("metrics", handle, step, copy, moment)

    def finish(self, handle: str, finished: Finished) -> None:
        """See `Tracker`."""
        moment = finished.at or time.time()
        self._put("finish", handle, finished, moment)

    def attach(self, run: str, files: Sequence[Path]) -> None:
        """See `Tracker`."""
        self._put("attach", run, [path.resolve() for path in files])

    def external_id(self, handle: str) -> str | None:
        """See `Tracker`; complete after `close`."""
        return self._external.get(handle)

    def when_closed(self, ended: Callable[[], None]) -> None:
        """See `Tracker`."""
        self._when_closed.append(ended)

    def close(self, *, seconds: float = CLOSE_SECONDS) -> str | None:
        """See `Tracker`; waits for the writer, but not for a server that does not answer."""
        self._awake.set()
        if self._thread is not None and not self._stages:
            # Nothing is to be written, and the thread ends the process.
            self._thread = None
        if self._thread is not None:
            self._operations.put(None)
            self._thread.join(seconds)
            if self._thread.is_alive():
                self._fail(f"{self.title} did not finish within {seconds:.0f} s")
            if self._process is not None:
                self._process.close(
                    seconds=0.0 if self._thread.is_alive() else min(seconds, _EXIT_SECONDS)
                )
            self._thread = None
            for ended in self._when_closed:
                ended()
        return self._problem

    def _put(self, name: str, *arguments: object) -> None:
        if self._problem is None:
            self._operations.put((name, arguments))

    def _write(self) -> None:
        """Body of the thread that hands operations to the writer."""
        try:
            self._process = WriterProcess(self.writer)
            self._awake.wait()
            if not self._stages:
                self._process.close()
                return
            self._process.open(self._state, self._uri)
            while (operation := self._next()) is not None:
                self._external.update(self._process.do(operation))
            self._process.do(_FLUSH)
        except WriterFailed as failed:
            self._fail(f"{self.title} tracking stopped: {_plainly(str(failed))}")

    def _next(self) -> Operation | None:
        """The next operation, a flush when there is none for a while; None at the end."""
        try:
            return self._operations.get(timeout=_FLUSH_SECONDS)
        except queue.Empty:
            return _FLUSH

    def _fail(self, reason: str) -> None:
        self._problem = f"{reason}; {self.remedy}"
        if self._on_problem is not None:
            self._on_problem(self._problem)


def _plainly(failure: str) -> str:
    """What a library says of a failure, without the names of its classes and retries."""
    if (asked := _NO_ANSWER.search(failure)) is not None:
        return f"the server at {asked[1]} does not answer; start it, or correct the address"
    return failure.partition(". ")[0]
