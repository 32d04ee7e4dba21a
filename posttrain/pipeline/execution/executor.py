"""Bring one stage up to date: reuse, restore or execute it, then publish and record."""

import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from posttrain.pipeline.determinism import stage_seed
from posttrain.pipeline.execution import gpus
from posttrain.pipeline.execution.assignment import Assignment
from posttrain.pipeline.execution.compatibility import models, refuse_mixed
from posttrain.pipeline.execution.display import Display
from posttrain.pipeline.execution.failures import StageFailed
from posttrain.pipeline.execution.parts import ArtifactPart, with_settings
from posttrain.pipeline.execution.publish import discard, prepare, publish
from posttrain.pipeline.execution.resumption import note_run, resumed_run
from posttrain.pipeline.execution.supervise import Limits, StageOutcome, StageProcesses
from posttrain.pipeline.judges import judge_digest
from posttrain.pipeline.plan import Decision, Planner
from posttrain.provenance.digest import digest_path
from posttrain.provenance.dvc import DvcStore
from posttrain.provenance.key import checkpoints_digest
from posttrain.provenance.ledger import ArtifactRecord, Composition, Ledger, StageRun
from posttrain.provenance.lineage.recalls import refuse_recalled
from posttrain.stage.errors import UserError
from posttrain.views.tracking.base import Tracker
from posttrain.views.tracking.projection import stage_finished, stage_started

__all__ = ["Executor", "StageFailed", "Timings"]


class Timings(dict[str, float]):
    """Seconds by phase of one stage run."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a block under `name`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self[name] = self.get(name, 0.0) + time.perf_counter() - started


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

    def bring_up_to_date(self, name: str, *, attempt: int = 1) -> StageRun:
        """Make the outputs of `name` be there and right; raises `StageFailed`."""
        timings = Timings()
        with timings.phase("key"), self._lock:
            decision = self.planner.decide(name, self.made)
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
        self.display.finished(name, record.status, record.ended - record.started)

    def _reuse(self, base: StageRun, decision: Decision, timings: Timings) -> StageRun:
        assert decision.known is not None
        known = decision.known
        record = replace(
            base,
            status="restored" if decision.action == "restore" else "cached",
            ended=time.time(),
            outputs=known.outputs,
            metrics=known.metrics,
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
                if not self.store.restore(path, str(record.md5)):
                    return False
        return True

    def _execute(self, base: StageRun, decision: Decision, timings: Timings) -> StageRun:
        name, workspace = base.stage, self.planner.workspace
        log = workspace.run_dir(self.run_id) / f"{name}.log"
        staging = workspace.staging(name, base.id)
        self.display.started(name, decision.reasons)
        with timings.phase("sources"), self._lock:
            self.planner.keep_sources(name)
        resumed = resumed_run(self._scratch(base))
        tracked = self.tracker.start(stage_started(base, self.tracked_run, resumes=resumed))
        base = replace(base, log_path=str(log.relative_to(workspace.root)))
        try:
            staged = prepare(staging, self._finals(name))
            assignment = self._assignment(base, staged, log)
            with timings.phase("execute"):
                outcome = self._attempt(assignment, tracked)
            if outcome.ok:
                record = self._publish(base, staged, outcome, timings)
        except (UserError, OSError) as error:
            outcome = StageOutcome(ok=False, error=str(error), refused=isinstance(error, UserError))
        finally:
            discard(staging)
        if not outcome.ok:
            self._fail(base, outcome, timings, tracked)
        record = self._tracked(record, tracked)
        self.ledger.record(record)
        shutil.rmtree(assignment.scratch, ignore_errors=True)
        return record

    def _attempt(self, assignment: Assignment, tracked: str) -> StageOutcome:
        settings = self.planner.recipe.run
        limits = Limits(settings.timeout_minutes * 60, settings.stall_minutes * 60)
        watch = self._watcher(assignment, tracked)
        stage = self.planner.dag.stages[assignment.stage]
        with gpus.held(
            stage.resources.devices(settings.device), give_up=lambda: self.processes.stopping
        ) as taken:
            return self.processes.attempt(replace(assignment, gpus=taken), limits, watch)

    def _watcher(self, assignment: Assignment, tracked: str) -> Callable[[Mapping[str, Any]], None]:
        noted = False

        def watch(event: Mapping[str, Any]) -> None:
            nonlocal noted
            if event["kind"] == "progress":
                done, total = event["done"], event["total"]
                self.display.progress(assignment.stage, done, total, event["unit"])
            elif event["kind"] == "metrics":
                self.tracker.metrics(tracked, event["step"], event["metrics"])
            noted = noted or note_run(assignment.scratch, self.tracker.external_id(tracked))

        return watch

    def _publish(
        self, base: StageRun, staged: Mapping[str, Path], outcome: StageOutcome, timings: Timings
    ) -> StageRun:
        stage = self.planner.dag.stages[base.stage]
        finals = self._finals(base.stage)
        with timings.phase("digest"):
            digests = {role: digest_path(path) for role, path in staged.items()}
            parts = self._parts(base, outcome)
        with timings.phase("publish"):
            publish(staged, finals)
        with timings.phase("store"):
            stored = self.store.store(list(finals.values()))
        outputs = tuple(
            ArtifactRecord(
                role=role,
                type=stage.task.outputs[role].type,
                path=str(relative),
                digest=digests[role].sha256,
                size=digests[role].size,
                rows=outcome.rows.get(role),
                producer=base.stage,
                md5=stored[finals[role]].md5,
            )
            for role, relative in stage.outputs().items()
        )
        self.ledger.compositions.add(
            *[Composition(each, parts[each.role]) for each in outputs if each.role in parts]
        )
        return replace(
            base,
            status="succeeded",
            ended=time.time(),
            outputs=outputs,
            metrics=outcome.metrics,
            timings=dict(timings) | {f"stage.{k}": v for k, v in outcome.timings.items()},
        )

    def _parts(
        self, base: StageRun, outcome: StageOutcome
    ) -> dict[str, tuple[ArtifactRecord, ...]]:
        """Parts of the outputs; refuses those that were recalled, or do not fit the inputs'."""
        stage = self.planner.dag.stages[base.stage]
        paths = stage.outputs()
        made = {
            role: tuple(self._part(part, str(paths[role])) for part in parts)
            for role, parts in self._specified(base, outcome).items()
            if parts
        }
        if made:
            refuse_recalled(self.ledger, [part for parts in made.values() for part in parts])
            inputs = {record.role: record.digest for record in base.inputs}
            refuse_mixed(stage, models(self.ledger, stage, inputs, made))
        return made

    def _specified(
        self, base: StageRun, outcome: StageOutcome
    ) -> Mapping[str, Sequence[ArtifactPart]]:
        """Parts of the outputs, judges with what they are asked where outputs or inputs tell it."""
        if all(part.digest for parts in outcome.parts.values() for part in parts):
            return outcome.parts
        known = self.ledger.compositions.parts_of([record.digest for record in base.inputs])
        judges = [part for parts in known.values() for part in parts if part.type == "judge"]
        return with_settings(outcome.parts, {part.path.partition(":")[2] for part in judges})

    def _part(self, part: ArtifactPart, whole: str) -> ArtifactRecord:
        digest = part.digest
        if digest is None:
            with self._lock:
                digest = judge_digest(self.planner.reader, str(part.name))
        return ArtifactRecord(part.type, part.type, part.path(whole), digest, part.size)

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
        self.ledger.record(record)
        self.display.finished(base.stage, "failed", record.ended - record.started)
        raise StageFailed(
            base.stage, str(outcome.error), retryable=outcome.retryable, refused=outcome.refused
        )

    def _tracked(self, record: StageRun, tracked: str) -> StageRun:
        """Tell the tracker of the end; its id is noted later where it does not know it yet."""
        self.tracker.finish(tracked, stage_finished(record))
        external = self.tracker.external_id(tracked)
        if external is None:
            self.late[record.id] = tracked
        return replace(record, mlflow_run_id=external)

    def note_late_ids(self) -> None:
        """Let the ledger know the tracker's ids that came after the records they belong to."""
        found = {each: self.tracker.external_id(handle) for each, handle in self.late.items()}
        self.ledger.annotations.track(
            {each: name for each, name in found.items() if name is not None}
        )

    def _assignment(self, base: StageRun, staged: Mapping[str, Path], log: Path) -> Assignment:
        stage = self.planner.dag.stages[base.stage]
        settings = self.planner.recipe.run
        workspace = self.planner.workspace
        paths = {
            role: ref.path or workspace.output(self.made[str(ref.stage)][str(ref.output)].path)
            for role, ref in stage.inputs.items()
        }
        return Assignment(
            stage=stage.name,
            entry=stage.task.entry,
            config=stage.config,
            inputs=paths,
            outputs=staged,
            types={role: port.type for role, port in stage.task.outputs.items()},
            scratch=self._scratch(base),
            log=log,
            seed=stage_seed(base.components["runtime"], stage.name),
            threads=settings.threads,
            device=settings.device,
            processes=stage.resources.processes,
            ray=stage.resources.ray,
            plugins=self.planner.recipe.plugins,
            unkeyed=self.planner.closure(stage.name).unused,
        )

    def _scratch(self, base: StageRun) -> Path:
        return self.planner.workspace.scratch(base.stage, checkpoints_digest(base.components))

    def _finals(self, name: str) -> dict[str, Path]:
        stage = self.planner.dag.stages[name]
        workspace = self.planner.workspace
        return {role: workspace.output(str(path)) for role, path in stage.outputs().items()}
