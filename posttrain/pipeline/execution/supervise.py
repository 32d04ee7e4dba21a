"""Run one attempt of a stage in its own process, watch it, and say how it ended."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import FrameType
from typing import Any

from posttrain.pipeline.execution.assignment import Assignment
from posttrain.pipeline.execution.failures import killed_by
from posttrain.pipeline.execution.parts import ArtifactPart
from posttrain.pipeline.execution.processes import Workers
from posttrain.pipeline.execution.sandboxes import sandboxes_of
from posttrain.provenance.code import Signature
from posttrain.stage.interrupts import Interrupted, hear
from posttrain.stage.kernels import Kernels

HEARTBEATS_MISSED = 60.0
_POLL_SECONDS = 0.5
_FINAL = frozenset({"done", "refused", "failed", "lost"})
# Trying again may help: what ended it came from outside.
_RETRYABLE = frozenset({"died", "stopped", "lost"})

EventListener = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Limits:
    """Seconds after which an attempt is stopped, in all and without a sign of progress."""

    total: float
    stall: float


@dataclass(frozen=True)
class StageOutcome:
    """How one attempt ended. `retryable` is false where trying again cannot help."""

    ok: bool
    error: str | None = None
    retryable: bool = False
    refused: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    rows: Mapping[str, int | None] = field(default_factory=dict)
    parts: Mapping[str, Sequence[ArtifactPart]] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    circumstances: Mapping[str, str] = field(default_factory=dict)
    imported: Mapping[str, Signature] = field(default_factory=dict)
    """First-party files that the stage imported, by which version."""


class StageProcesses:
    """Starts stage processes from a fork server that has the heavy imports done.

    Without `models`, transformers is left to the stages that want it after all.
    """

    def __init__(self, threads: int, *, kernels: Kernels = "portable", models: bool = True) -> None:
        self._workers = Workers(threads, kernels=kernels, models=models)
        self._stopping = threading.Event()
        self._abortable = False

    def warm(self) -> None:
        """Start the fork server now, so that its imports overlap with the caller's own."""
        self._workers.warm()

    def close(self) -> None:
        """Leave no process behind."""
        self._workers.close()

    @property
    def stopping(self) -> bool:
        """True once `stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End every attempt that is running, within a moment, and let none begin."""
        self._stopping.set()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Stop at the first signal that asks for it, and raise `Interrupted` at the block's end.

        Raising at once would leave the main thread waiting for a stage thread, as long as the
        stage lasts, and records half written. A further signal does raise at once. Outside the
        main thread, where Python delivers no signals, nothing is changed.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        asked: list[int] = []

        def interrupt(number: int, _frame: FrameType | None) -> None:
            asked.append(number)
            self.stop()
            if self._abortable or len(asked) > 1:
                raise Interrupted(number)

        before = hear(interrupt)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if asked:
                raise Interrupted(asked[0]) from None

    @contextmanager
    def abortable(self) -> Iterator[None]:
        """Raise `Interrupted` in the block at once: nothing in it has to be brought to its end."""
        self._abortable = True
        try:
            if self.stopping:
                raise KeyboardInterrupt
            yield
        finally:
            self._abortable = False

    def attempt(self, assignment: Assignment, limits: Limits, watch: EventListener) -> StageOutcome:
        """Run one attempt to its end; `watch` sees progress, metrics and notes as they come."""
        worker = self._workers.take()
        final: Mapping[str, Any] = {}
        try:
            with sandboxes_of(assignment, worker.door):
                given = worker.give(assignment)
                lost: Mapping[str, Any] = {"kind": "died"}
                final = _listen(worker.events, limits, watch, self._stopping) if given else lost
        finally:
            if final.get("kind") == "done":
                self._workers.dismiss(worker, num_bytes=final["num_bytes"])
            else:
                worker.end(patient=not self._stopping.is_set())
        return _outcome(final, worker.process, assignment.log)


def _listen(
    receiver: connection.Connection, limits: Limits, watch: EventListener, stopping: threading.Event
) -> Mapping[str, Any]:
    """Pump events until the final one, the end of the process, a limit, or the order to stop."""
    begun = beaten = progressed = time.monotonic()
    while True:
        if stopping.is_set():
            return {"kind": "interrupted", "error": "it was interrupted"}
        if receiver.poll(_POLL_SECONDS):
            try:
                event = receiver.recv()
            except EOFError:
                return {"kind": "died"}
            beaten = time.monotonic()
            if event["kind"] in _FINAL:
                return dict(event)
            if event["kind"] != "heartbeat":
                progressed = beaten
                watch(event)
        now = time.monotonic()
        if now - begun > limits.total:
            return _stopped(f"ran longer than {limits.total / 60:g} min (run.timeout_minutes)")
        if now - progressed > limits.stall:
            return _stopped(f"made no progress for {limits.stall / 60:g} min (run.stall_minutes)")
        if now - beaten > HEARTBEATS_MISSED:
            return _stopped(f"sent no heartbeat for {HEARTBEATS_MISSED:g} s")


def _stopped(reason: str) -> dict[str, Any]:
    return {"kind": "stopped", "error": f"it {reason} and was stopped"}


def _outcome(final: Mapping[str, Any], process: ForkServerProcess, log: Path) -> StageOutcome:
    kind = final["kind"]
    if kind == "done":
        names = ("metrics", "rows", "parts", "timings", "circumstances", "imported")
        return StageOutcome(ok=True, **{name: final[name] for name in names})
    if kind == "refused":
        return StageOutcome(ok=False, error=final["error"], refused=True)
    error = _death(process.exitcode) if kind == "died" else final["error"]
    return StageOutcome(ok=False, error=f"{error}; log: {log}", retryable=kind in _RETRYABLE)


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process {killed_by(-code)}"
    return f"its process ended with exit code {code} before it was done"
