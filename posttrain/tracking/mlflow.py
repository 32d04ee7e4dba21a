"""The MLflow view: everything is queued, and one thread writes it, off the pipeline's path.

Importing mlflow takes seconds, and so does creating its database; both happen in that thread, which
starts with the first stage: a run in which nothing runs never imports mlflow.
"""

import queue
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from posttrain.tracking.base import Finished, Started, Tracker

_FLUSH_SECONDS = 3.0
_CLOSE_SECONDS = 60.0
_REMEDY = "the run goes on without it; `posttrain mlflow rebuild` restores it from the ledger"

Operation = Callable[[Any], None]


class MlflowTracker(Tracker):
    """Writes to `uri`, by default the SQLite database `mlflow.db` in the state directory.

    If tracking fails, what follows is dropped; `on_problem` hears of it at once, `close` says it.
    """

    def __init__(
        self,
        state: Path,
        *,
        uri: str | None = None,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        self._state = state.resolve()
        self._uri = uri
        self._on_problem = on_problem
        self._operations: queue.SimpleQueue[Operation | None] = queue.SimpleQueue()
        self._external: dict[str, str] = {}
        self._thread: threading.Thread | None = None
        self._problem: str | None = None
        self._when_closed: list[Callable[[], None]] = []

    def start(self, started: Started) -> str:
        """See `Tracker`. Only a stage wakes the writer: a run without any is not worth a row."""
        handle = uuid.uuid4().hex
        moment = started.at or time.time()
        self._put(lambda writer: writer.start(handle, started, moment))
        if started.parent is not None and self._thread is None:
            self._thread = threading.Thread(target=self._write, name="mlflow", daemon=True)
            self._thread.start()
        return handle

    def metrics(self, handle: str, step: int, values: Mapping[str, float]) -> None:
        """See `Tracker`."""
        moment, copy = time.time(), dict(values)
        self._put(lambda writer: writer.metrics(handle, step, copy, moment))

    def finish(self, handle: str, finished: Finished) -> None:
        """See `Tracker`."""
        moment = finished.at or time.time()
        self._put(lambda writer: writer.finish(handle, finished, moment))

    def external_id(self, handle: str) -> str | None:
        """See `Tracker`; complete after `close`."""
        return self._external.get(handle)

    def when_closed(self, ended: Callable[[], None]) -> None:
        """See `Tracker`."""
        self._when_closed.append(ended)

    def close(self) -> str | None:
        """See `Tracker`; waits for the writer, but not for a server that does not answer."""
        if self._thread is not None:
            self._operations.put(None)
            self._thread.join(_CLOSE_SECONDS)
            if self._thread.is_alive():
                self._fail(f"MLflow did not finish within {_CLOSE_SECONDS:.0f} s")
            self._thread = None
            for ended in self._when_closed:
                ended()
        return self._problem

    def _put(self, operation: Operation) -> None:
        if self._problem is None:
            self._operations.put(operation)

    def _write(self) -> None:
        """Body of the writer thread."""
        try:
            from posttrain.tracking.mlflow_writer import MlflowWriter

            writer = MlflowWriter.open(self._state, self._uri, self._external)
            while self._step(writer):
                pass
        except Exception as error:  # noqa: BLE001 - the boundary: tracking never ends a run
            self._fail(f"MLflow tracking stopped: {type(error).__name__}: {_first_line(error)}")

    def _step(self, writer: Any) -> bool:
        """Do one operation, or flush when there is none for a while; False at the end."""
        try:
            operation = self._operations.get(timeout=_FLUSH_SECONDS)
        except queue.Empty:
            writer.flush()
            return True
        if operation is None:
            writer.flush()
            return False
        operation(writer)
        return True

    def _fail(self, reason: str) -> None:
        self._problem = f"{reason}; {_REMEDY}"
        if self._on_problem is not None:
            self._on_problem(self._problem)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no message"
