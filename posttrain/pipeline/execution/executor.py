"""Bring one stage up to date: reuse, restore or execute it, then publish and record."""

import shutil
import socket
import threading
import time
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from posttrain.pipeline.execution.attempt import (
    Attempts,
    Timings,
    assign,
    record_attempt,
    resumed_run,
    scratch_of,
)
from posttrain.pipeline.execution.begin import begin_run, warm_processes
from posttrain.pipeline.execution.display import Display
from posttrain.pipeline.execution.failures import StageFailed
from posttrain.pipeline.execution.outputs import OutputPublisher, finals_of
from posttrain.pipeline.execution.publish import discard, prepare
from posttrain.pipeline.execution.supervise import StageOutcome, StageProcesses
from posttrain.pipeline.plan import Decision, Planner
from posttrain.provenance.dvc import DvcStore
from posttrain.provenance.ledger import ArtifactRecord, Ledger, StageRun
from posttrain.provenance.ledger.annotations import TRACKED
from posttrain.provenance.lineage.recalls import refuse_recalled
from posttrain.stage.errors import UserError
from posttrain.views.tracking.base import Tracker
from posttrain.views.tracking.projection import stage_finished, stage_started

__all__ = ["Executor", "StageFailed", "begin_run", "warm_processes"]


@dataclass
class Executor:
    """What every stage of one pipeline run shares. Safe to use from several threads."""

    run_id: str
    planner: Planner
    ledger: Ledger
    tracker: Tracker
    store: DvcStore
    processes: StageProcesses
    display: Display
    tracked_run: str
    prefect_run_id: str | None = None
    made: dict[str, dict[str, ArtifactRecord]] = field(default_factory=dict)
    results: dict[str, StageRun] = field(default_factory=dict)
    late: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _attempts: Attempts = field(init=False)
    _outputs: OutputPublisher = field(init=False)

    def __post_init__(self) -> None:
        self._attempts = Attempts(self.planner, self.processes, self.display, self.tracker)
        self._outputs = OutputPublisher(self.planner, self.ledger, self.store, self._lock)

    def bring_up_to_date(self, name: str, *, attempt: int = 1) -> StageRun:
        """Make the outputs of `name` be there and right; raises `StageFailed`."""
        if self.processes.interruption.requested:
            raise self.processes.interruption.error()
        timings = Timings()
        with timings.phase("key"), self._lock:
            self.planner.keys.look_again()
            decision = self.planner.decide(name, self.made)
        if decision.action == "missing":
            self.planner.refuse_absent([name])
        base = self._base(decision, attempt)
        if decision.action == "run" or (
            decision.action == "restore" and not self._restore(decision, timings)
        ):
            record = self._execute(base, decision, timings)
        else:
            record = self._reuse(base, decision, timings)
        self.accept(name, record)
        return record

    def reuse(self, decision: Decision) -> None:
        """Take over a stage that is known to be up to date."""
        self.accept(decision.stage, self._reuse(self._base(decision, 1), decision, Timings()))

    def _base(self, decision: Decision, attempt: int) -> StageRun:
        """The part of a stage's record that is known before anything happens to it."""
        assert decision.key is not None
        now = time.time()
        with self._lock:
            inputs = tuple(self.planner.input_records(decision.stage, self.made).values())
        refuse_recalled(self.ledger, inputs)
        return StageRun(
            id=uuid.uuid4().hex,
            run_id=self.run_id,
            stage=decision.stage,
            task=self.planner.dag.stages[decision.stage].task.package,
            key=decision.key.digest,
            status="cached",
            started=now,
            ended=now,
            components=decision.key.components,
            inputs=inputs,
            host=socket.gethostname(),
            attempt=attempt,
        )

    def accept(self, name: str, record: StageRun) -> None:
        """Let the stages after `name` see its outputs."""
        with self._lock:
            self.made[name] = {output.role: output for output in record.outputs}
            self.results[name] = record
        self.display.finished(name, record.status, record.seconds)

    def _reuse(self, base: StageRun, decision: Decision, timings: Timings) -> StageRun:
        assert decision.known is not None
        known = decision.known
        record = replace(
            base,
            status="restored" if decision.action == "restore" else "cached",
            ended=time.time(),
            outputs=known.outputs,
            metrics=known.metrics,
            circumstances=known.circumstances,
            timings=dict(timings),
            log_path=known.log_path,
            mlflow_run_id=known.mlflow_run_id,
        )
        self.ledger.record(record)
        return record

    def _restore(self, decision: Decision, timings: Timings) -> bool:
        """Bring the known outputs back from the cache; False where an object is lost."""
        assert decision.known is not None
        with timings.phase("restore"):
            for record in decision.known.outputs:
                path = self.planner.workspace.output(record.path)
                if record.md5 is None or not self.store.restore(path, record.md5):
                    return False
        return True

    def _execute(self, base: StageRun, decision: Decision, timings: Timings) -> StageRun:
        name, workspace = base.stage, self.planner.workspace
        if over := self._attempts.meter.beyond():
            raise StageFailed(
                name, f"not begun, as the run took {over}", retryable=False, refused=False
            )
        log = workspace.run_dir(self.run_id) / f"{name}.log"
        staging = workspace.staging(name, base.id)
        self.display.started(name, decision.reasons)
        with timings.phase("sources"), self._lock:
            self.planner.keys.keep_sources(name)
        resumed = resumed_run(scratch_of(self.planner, base))
        tracked = self.tracker.start(
            stage_started(base, self.tracked_run, resumes=resumed, find=self._place)
        )
        base = replace(base, log_path=str(log.relative_to(workspace.root)))
        try:
            self.planner.refuse_absent([name])
            staged = prepare(staging, finals_of(self.planner, name))
            assignment = assign(self.planner, base, self.made, staged=staged, log=log)
            with timings.phase("execute"):
                outcome = self._attempts.run(assignment, tracked)
            if outcome.ok:
                record = self._outputs.publish(base, staged, outcome, timings)
        except (UserError, OSError) as error:
            outcome = StageOutcome(ok=False, error=str(error), refused=isinstance(error, UserError))
        finally:
            discard(staging)
        if not outcome.ok and (outcome.stopped or self.processes.interruption.requested):
            self._stop(base, outcome, timings, tracked)
        if not outcome.ok:
            self._fail(base, outcome, timings, tracked)
        record = self._tracked(record, tracked)
        record_attempt(self.ledger, record, outcome)
        shutil.rmtree(assignment.scratch, ignore_errors=True)
        return record

    def _stop(
        self, base: StageRun, outcome: StageOutcome, timings: Timings, tracked: str
    ) -> NoReturn:
        """Record that the run was asked to end, and go on with nothing."""
        asked = self.processes.interruption.error()
        kept = f"; its checkpoint {outcome.error} was saved" if outcome.error else ""
        record = replace(
            base,
            status="stopped",
            ended=time.time(),
            error=f"stopped by {asked}{kept}",
            timings=dict(timings),
        )
        record_attempt(self.ledger, self._tracked(record, tracked), outcome)
        raise asked

    def _fail(
        self, base: StageRun, outcome: StageOutcome, timings: Timings, tracked: str
    ) -> NoReturn:
        record = replace(
            base,
            status="failed",
            ended=time.time(),
            error=outcome.error,
            timings=dict(timings),
        )
        record = self._tracked(record, tracked)
        record_attempt(self.ledger, record, outcome)
        self.display.finished(base.stage, "failed", record.seconds)
        raise StageFailed(
            base.stage, str(outcome.error), retryable=outcome.retryable, refused=outcome.refused
        )

    def _tracked(self, record: StageRun, tracked: str) -> StageRun:
        """Tell the tracker of the end; its id is noted later where it does not know it yet."""
        self.tracker.finish(tracked, stage_finished(record, find=self._place))
        external = self.tracker.external_id(tracked)
        if external is None:
            self.late[record.id] = tracked
        return replace(record, mlflow_run_id=external)

    def _place(self, record: ArtifactRecord) -> Path:
        return self.planner.workspace.output(record.path)

    def note_late_ids(self) -> None:
        """Let the ledger know the tracker's ids that came after the records they belong to."""
        found = {each: self.tracker.external_id(handle) for each, handle in self.late.items()}
        self.ledger.annotations.note(
            TRACKED, {each: name for each, name in found.items() if name is not None}
        )
