"""One attempt at a stage: what its process is given, what is reported of it, how long it takes."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from posttrain.pipeline.connected_verifiers import with_remedy
from posttrain.pipeline.determinism import stage_seed
from posttrain.pipeline.execution import gpus
from posttrain.pipeline.execution.assignment import Assignment, rank_log
from posttrain.pipeline.execution.display import Display
from posttrain.pipeline.execution.meter import RunMeter, StageMeter
from posttrain.pipeline.execution.sight import declared_files, view_of
from posttrain.pipeline.execution.supervise import Limits, StageOutcome, StageProcesses
from posttrain.pipeline.plan import Planner
from posttrain.provenance.key import checkpoints_digest
from posttrain.provenance.ledger import ArtifactRecord, Ledger, StageRun
from posttrain.provenance.ledger.usage import note_usage
from posttrain.stage.context import TRACKED_RUN
from posttrain.stage.files import replacing
from posttrain.views.tracking.base import Tracker

_RESUMING = "resuming after"
"""How the note of a stage begins that goes on from a checkpoint; all other notes are in its log."""


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


def assign(
    planner: Planner,
    base: StageRun,
    made: Mapping[str, Mapping[str, ArtifactRecord]],
    *,
    staged: Mapping[str, Path],
    log: Path,
) -> Assignment:
    """Collect what the process of a stage is given.

    Args:
        planner: The plan of the recipe.
        base: The record of the stage run, with its key.
        made: Outputs by role of the stages before it, by the name of the stage.
        staged: Where each output is to be written, by role.
        log: Where what the process prints is kept.

    """
    stage = planner.dag.stages[base.stage]
    settings = planner.recipe.run
    workspace = planner.workspace
    paths = {
        role: ref.path or workspace.output(made[str(ref.stage)][str(ref.output)].path)
        for role, ref in stage.inputs.items()
    }
    scratch = scratch_of(planner, base)
    declared = declared_files(paths)
    return Assignment(
        stage=stage.name,
        entry=stage.task.entry,
        config=stage.config,
        inputs={role: path for role, path in paths.items() if role not in declared},
        outputs=staged,
        types={role: port.type for role, port in stage.task.outputs.items()},
        scratch=scratch,
        log=log,
        seed=stage_seed(base.components["runtime"], stage.name),
        threads=settings.threads,
        device=settings.device,
        kernels=settings.kernels,
        processes=stage.resources.processes,
        ray=stage.resources.ray,
        plugins=planner.recipe.plugins,
        unkeyed=planner.keys.closure(stage.name).unused,
        view=view_of(
            planner,
            base,
            paths,
            staging=next(iter(staged.values())).parent,
            scratch=scratch,
            logs=[rank_log(log, rank) for rank in range(1, stage.resources.processes)],
        ),
    )


def scratch_of(planner: Planner, base: StageRun) -> Path:
    """Return the folder where a stage keeps its checkpoints, named by what they depend on."""
    return planner.workspace.scratch(base.stage, checkpoints_digest(base.components))


@dataclass(frozen=True)
class Attempts:
    """Runs attempts in processes, and shows and tracks what they report."""

    planner: Planner
    processes: StageProcesses
    display: Display
    tracker: Tracker
    meter: RunMeter = field(init=False)
    """What all of them took, beside the recipe's budget."""

    def __post_init__(self) -> None:
        settings = self.planner.recipe.cost_settings()
        object.__setattr__(self, "meter", RunMeter(settings))

    def run(self, assignment: Assignment, tracked: str) -> StageOutcome:
        """Run one attempt to its end, with the devices it needs held for it.

        Args:
            assignment: What the process is given.
            tracked: The tracker's handle of the stage run.

        """
        settings = self.planner.recipe.run
        watch = self._watcher(assignment, tracked)
        stage = self.planner.dag.stages[assignment.stage]
        with gpus.held(
            stage.resources.devices(settings.device),
            give_up=lambda: self.processes.interruption.requested,
        ) as taken:
            meter = StageMeter(taken)
            limits = Limits(
                settings.timeout_minutes * 60,
                settings.stall_minutes * 60,
                self.meter.watch(len(taken)),
            )
            outcome = self.processes.attempt(replace(assignment, gpus=taken), limits, watch)
        usage = meter.read(outcome.cpu_seconds)
        self.meter.add(usage)
        outcome = replace(outcome, usage=usage)
        if outcome.refused:
            error = with_remedy(str(outcome.error), stage, self.planner.dag)
            outcome = replace(outcome, error=error)
        return outcome

    def _watcher(self, assignment: Assignment, tracked: str) -> Callable[[Mapping[str, Any]], None]:
        noted = False

        def watch(event: Mapping[str, Any]) -> None:
            nonlocal noted
            if event["kind"] == "progress":
                done, total = event["done"], event["total"]
                self.display.progress(assignment.stage, done, total, event["unit"])
            elif event["kind"] == "note" and event["line"].startswith(_RESUMING):
                self.display.noted(assignment.stage, event["line"])
            elif event["kind"] == "metrics":
                self.tracker.metrics(tracked, event["step"], event["metrics"])
            noted = noted or note_run(assignment.scratch, self.tracker.external_id(tracked))

        return watch


def record_attempt(ledger: Ledger, record: StageRun, outcome: StageOutcome) -> None:
    """Append what was executed, and note what it took."""
    ledger.record(record)
    if outcome.usage is not None:
        note_usage(ledger.annotations, record.id, outcome.usage)


def resumed_run(scratch: Path) -> str | None:
    """The tracker's id of the killed attempt whose checkpoint will be taken up, if there is one."""
    noted = scratch / TRACKED_RUN
    if not noted.is_file() or not any(scratch.glob("checkpoints/step-*")):
        return None
    return noted.read_text()


def note_run(scratch: Path, external: str | None) -> bool:
    """Keep the id beside the checkpoints; False where it is not known yet."""
    if external is None:
        return False
    scratch.mkdir(parents=True, exist_ok=True)
    with replacing(scratch / TRACKED_RUN) as partial:
        partial.write_text(external)
    return True
