"""Run one attempt of a stage in its own process, watch it, and say how it ended."""

import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from posttrain.pipeline.execution.assignment import Assignment
from posttrain.pipeline.execution.failures import killed_by
from posttrain.pipeline.execution.interruption import Interruption
from posttrain.pipeline.execution.last_checkpoint import can_save
from posttrain.pipeline.execution.meter import cpu_seconds_of
from posttrain.pipeline.execution.parts import ArtifactPart
from posttrain.pipeline.execution.processes import StageWorker, Workers
from posttrain.pipeline.execution.sandboxes import sandboxes_of
from posttrain.provenance.code import Signature
from posttrain.provenance.ledger.usage import Usage
from posttrain.stage.kernels import Kernels

HEARTBEATS_MISSED = 60.0
_POLL_SECONDS = 0.1
_FINAL = frozenset({"done", "refused", "failed", "lost", "saved"})
# Trying again may help: what ended it came from outside.
_RETRYABLE = frozenset({"died", "stopped", "lost"})

EventListener = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Limits:
    """Seconds after which an attempt is stopped, in all and without a sign of progress."""

    total: float
    stall: float
    beyond: Callable[[int, float], str] = lambda _pid, _seconds: ""
    """Says, by the process and the seconds of an attempt, which budget it goes beyond."""

    def reached(self, running: float, still: float, silent: float) -> str:
        """Say which limit an attempt reached, by its seconds; empty where it may go on.

        Args:
            running: Since it began.
            still: Since its last progress.
            silent: Since its last heartbeat.

        """
        if running > self.total:
            return f"ran longer than {self.total / 60:g} min (run.timeout_minutes)"
        if still > self.stall:
            return f"made no progress for {self.stall / 60:g} min (run.stall_minutes)"
        if silent > HEARTBEATS_MISSED:
            return f"sent no heartbeat for {HEARTBEATS_MISSED:g} s"
        return ""


@dataclass(frozen=True)
class StageOutcome:
    """How one attempt ended. `retryable` is false where trying again cannot help."""

    ok: bool
    error: str | None = None
    retryable: bool = False
    refused: bool = False
    stopped: bool = False
    """The run was asked to end, and nothing is wrong with the stage."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    rows: Mapping[str, int | None] = field(default_factory=dict)
    parts: Mapping[str, Sequence[ArtifactPart]] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    circumstances: Mapping[str, str] = field(default_factory=dict)
    cpu_seconds: float | None = None
    """Processor time; None where its process ended without saying."""
    usage: Usage | None = None
    """What the attempt took; None where it never began."""
    imported: Mapping[str, Signature] = field(default_factory=dict)
    """First-party files that the stage imported, by which version."""


class StageProcesses:
    """Starts stage processes from a fork server that has the heavy imports done.

    `packages` are those that the stages may import; without it, any. What the server left out a
    stage imports itself.
    """

    def __init__(
        self,
        threads: int,
        *,
        kernels: Kernels = "portable",
        packages: Collection[str] | None = None,
    ) -> None:
        self._workers = Workers(threads, kernels=kernels, packages=packages)
        self.interruption = Interruption()

    def warm(self) -> None:
        """Start the fork server now, so that its imports overlap with the caller's own."""
        self._workers.warm()

    def close(self) -> None:
        """Leave no process behind."""
        self._workers.close(patient=not self.interruption.requested)

    def attempt(self, assignment: Assignment, limits: Limits, watch: EventListener) -> StageOutcome:
        """Run one attempt to its end; `watch` sees progress, metrics and notes as they come."""
        if self.interruption.requested:
            return StageOutcome(ok=False, stopped=True)
        worker = self._workers.take()
        final: Mapping[str, Any] = {}
        taken: float | None = None
        try:
            with sandboxes_of(assignment, worker.door):
                given = worker.give(assignment)
                lost: Mapping[str, Any] = {"kind": "died"}
                saving = can_save(assignment)
                with self.interruption.saving() if saving else nullcontext():
                    final = self._listen(worker, limits, watch, saving=saving) if given else lost
        finally:
            if final.get("kind") == "done":
                self._workers.dismiss(worker, num_bytes=final["num_bytes"])
            else:
                # What is stopped does not come to say it, and nobody can ask it afterwards.
                taken = cpu_seconds_of(worker.pid) or None
                worker.end(patient=not self.interruption.requested)
        if self._was_interrupted(final["kind"]):
            outcome = StageOutcome(ok=False, stopped=True, error=final.get("saved"))
        else:
            outcome = _outcome(final, worker.process, assignment.log)
        return replace(outcome, cpu_seconds=final.get("cpu_seconds", taken))

    def _was_interrupted(self, kind: str) -> bool:
        if kind == "done":
            return False
        # A signal to all processes may end a stage's before it is heard here.
        foreseen = kind == "refused" or self.interruption.requested
        return self.interruption.requested if foreseen else self.interruption.explains_failure()

    def _listen(
        self, worker: StageWorker, limits: Limits, watch: EventListener, *, saving: bool
    ) -> Mapping[str, Any]:
        """Pump events until the final one, the end of the process, a limit, or the order to stop.

        A stage that is `saving` has a moment for a last checkpoint before it is stopped.
        """
        begun = beaten = progressed = time.monotonic()
        told, receiver = False, worker.events
        while True:
            if self.interruption.requested:
                if not saving or not self.interruption.grace_left():
                    return {"kind": "interrupted"}
                if not told:
                    told = True
                    with suppress(ProcessLookupError):
                        os.kill(worker.pid, signal.SIGTERM)
            if receiver.poll(_POLL_SECONDS):
                try:
                    event = receiver.recv()
                except (EOFError, ConnectionResetError):
                    return {"kind": "died"}
                beaten = time.monotonic()
                if event["kind"] in _FINAL:
                    return dict(event)
                if event["kind"] != "heartbeat":
                    progressed = beaten
                    watch(event)
            now = time.monotonic()
            if over := limits.beyond(worker.pid, now - begun):
                return {"kind": "over", "error": f"the run took {over}, and it was stopped"}
            if why := limits.reached(now - begun, now - progressed, now - beaten):
                return {"kind": "stopped", "error": f"it {why} and was stopped"}


def _outcome(final: Mapping[str, Any], process: ForkServerProcess, log: Path) -> StageOutcome:
    kind = final["kind"]
    if kind == "done":
        names = ("metrics", "rows", "parts", "timings", "circumstances", "imported")
        return StageOutcome(ok=True, **{name: final[name] for name in names})
    if kind == "refused":
        return StageOutcome(ok=False, error=final["error"], refused=True)
    if kind == "over":
        return StageOutcome(ok=False, error=final["error"])
    error = _death(process.exitcode) if kind == "died" else final["error"]
    return StageOutcome(ok=False, error=f"{error}; log: {log}", retryable=kind in _RETRYABLE)


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process {killed_by(-code)}"
    return f"its process ended with exit code {code} before it was done"
