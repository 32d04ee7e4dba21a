"""Run one attempt of a stage in its own process, watch it, and say how it ended."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from posttrain.execution import child
from posttrain.execution.child import Assignment
from posttrain.execution.determinism import thread_environment
from posttrain.execution.parts import Part

HEARTBEATS_MISSED = 60.0
_POLL_SECONDS = 0.5
_EXIT_SECONDS = 2.0

Watch = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Limits:
    """Seconds after which an attempt is stopped, in all and without a sign of progress."""

    total: float
    stall: float


@dataclass(frozen=True)
class Outcome:
    """How one attempt ended. `retryable` is false where trying again cannot help."""

    ok: bool
    error: str | None = None
    retryable: bool = False
    refused: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict)
    rows: Mapping[str, int | None] = field(default_factory=dict)
    parts: Mapping[str, Sequence[Part]] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)


class StageProcesses:
    """Starts stage processes from a fork server that has torch and transformers imported."""

    def __init__(self, threads: int) -> None:
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._threads = threads
        self._stopping = threading.Event()

    def warm(self) -> None:
        """Start the fork server now, so that its imports overlap with the caller's own."""
        from multiprocessing import forkserver

        os.environ.update(thread_environment(self._threads))
        self._context.set_forkserver_preload(["posttrain.execution.preload"])
        forkserver.ensure_running()

    @property
    def stopping(self) -> bool:
        """True once `stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End every attempt that is running, within a moment, and let none begin."""
        self._stopping.set()

    def attempt(self, assignment: Assignment, limits: Limits, watch: Watch) -> Outcome:
        """Run one attempt to its end; `watch` sees progress, metrics and notes as they come."""
        self.warm()
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=child.main, args=(assignment, sender), daemon=True)
        process.start()
        sender.close()
        try:
            final = _listen(receiver, limits, watch, self._stopping)
        finally:
            _end(process, patient=not self._stopping.is_set())
            receiver.close()
        return _outcome(final, process, assignment.log)


def _listen(
    receiver: connection.Connection, limits: Limits, watch: Watch, stopping: threading.Event
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
            if event["kind"] in ("done", "refused", "failed"):
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


def _end(process: ForkServerProcess, *, patient: bool) -> None:
    """Leave no process behind: one that has sent its last word gets a moment to exit."""
    process.join(timeout=_EXIT_SECONDS if patient else 0)
    if process.is_alive():
        process.kill()
        process.join()


def _outcome(final: Mapping[str, Any], process: ForkServerProcess, log: Path) -> Outcome:
    kind = final["kind"]
    if kind == "done":
        return Outcome(
            ok=True,
            metrics=final["metrics"],
            rows=final["rows"],
            parts=final["parts"],
            timings=final["timings"],
        )
    if kind == "refused":
        return Outcome(ok=False, error=final["error"], refused=True)
    if kind == "died":
        return Outcome(ok=False, error=f"{_death(process.exitcode)}; log: {log}", retryable=True)
    return Outcome(ok=False, error=f"{final['error']}; log: {log}", retryable=kind == "stopped")


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        memory = " (often: out of memory)" if name == "SIGKILL" else ""
        return f"its process was killed by {name}{memory}"
    return f"its process ended with exit code {code} before it was done"
