"""One invocation of a recipe from opening the workspace to the summary."""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from posttrain.pipeline.execution.lockstate import (
    keep_committed,
    learn_committed,
    refresh_lock,
)
from posttrain.pipeline.generate import generated_files, stage_entries, write_generated
from posttrain.pipeline.plan import Decision, Planner
from posttrain.pipeline.recipe import Recipe, load_recipe
from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.dvc import LOCK_FILE, DvcStore, LockEntry, check_lock, check_repository
from posttrain.provenance.ledger import (
    REPORT_FILE,
    ArtifactRecord,
    Ledger,
    Run,
    StageRun,
    ledger_location,
    open_ledger,
)
from posttrain.stage.errors import UserError, UserErrors, nearest
from posttrain.stage.hashing import StatCache
from posttrain.stage.slots import plugged
from posttrain.stage.spec import Dag

if TYPE_CHECKING:
    from posttrain.pipeline.execution.display import Display
    from posttrain.pipeline.execution.executor import Executor
    from posttrain.views.tracking.base import Tracker

Runner = Callable[["Executor", Sequence[str]], None]


@dataclass
class Session:
    """A recipe, its DAG and the places that remember; opened cheaply, before any decision."""

    recipe: Recipe
    dag: Dag
    workspace: Workspace
    ledger: Ledger
    store: DvcStore
    stat_cache: StatCache
    planner: Planner
    records: dict[str, StageRun] = field(default_factory=dict)
    assumed: dict[str, dict[str, ArtifactRecord]] = field(default_factory=dict)
    keeps_lock: bool = True
    tries: bool = False
    """What is generated lies beside the committed files, which say what the recipe says."""
    ends_process: bool = True
    """A signal ends this process with the run; one that goes on, as a notebook's, says False."""

    @property
    def page(self) -> Path:
        """The report of the whole recipe: beside it, or with what a try generates."""
        return (self.workspace.tries if self.tries else self.recipe.directory) / REPORT_FILE

    def entries(self) -> list[LockEntry]:
        """Every stage as dvc.yaml describes it."""
        closures = {name: self.planner.keys.closure(name) for name in self.dag.stages}
        return stage_entries(self.recipe, self.dag, self.workspace, closures)

    def generated(self) -> dict[str, str]:
        """Texts of dvc.yaml and params.yaml for the recipe as it is now."""
        return generated_files(self.recipe, self.dag, self.entries())

    def require(self, stage: str) -> str:
        """`stage` if the flow has it, else a sentence with the nearest name, or all of them."""
        if stage not in self.dag.stages:
            hint = nearest(stage, self.dag.stages) or f"; there are {', '.join(self.dag.stages)}"
            raise UserError(f"there is no stage '{stage}'{hint}")
        return stage

    def force(self, stage: str) -> None:
        """Run `stage` and everything after it, up to date or not."""
        self.planner.forced = frozenset(self.dag.downstream([self.require(stage)]))

    def single(self, stage: str) -> list[Decision]:
        """Consider `stage` alone: what comes before it counts as it lies in the workspace."""
        upstream = self.dag.upstream(self.require(stage))
        read = [ref for ref in self.dag.stages[stage].inputs.values() if ref.stage is not None]
        self.assumed = {
            name: self.planner.outputs_in_place(
                name, {str(ref.output) for ref in read if ref.stage == name}
            )
            for name in upstream
        }
        return [self.planner.decide(stage, self.assumed)]

    def settle(self, decisions: Sequence[Decision]) -> None:
        """Nothing to run: make sure that the generated files and locks say what is there."""
        _say_unseen(decisions)
        self.records = {d.stage: d.known for d in decisions if d.known is not None}
        self._write_state()

    def run(
        self,
        decisions: Sequence[Decision],
        *,
        runner: Runner,
        tracker: "Tracker",
        display: "Display",
        command: str,
    ) -> Run:
        """Bring every stage of `decisions` up to date; always leaves ledger and dvc.lock true.

        A recipe with which nothing new was made leaves the generated files of the one before.
        A signal that asks the run to end is heard from its first record to its last.
        """
        # What only looks at a recipe does without.
        from posttrain.pipeline.execution.display import NotedProgress
        from posttrain.pipeline.execution.executor import (
            Executor,
            StageFailed,
            begin_run,
            warm_processes,
        )
        from posttrain.views.tracking.projection import run_started

        self.refuse_missing(decisions)
        _say_unseen(decisions)
        # Its imports overlap with ours.
        processes = warm_processes(self.planner, decisions)
        self.refuse_places(makes=True)
        interruption = processes.interruption
        notice, ends = self.recipe.run.grace_seconds, self.ends_process
        with interruption.heard(notice=notice, ends_process=ends):
            begun = begin_run(self.planner, command)
            run = begun.run
            tracked = tracker.start(run_started(run, begun.origin, folder=self.workspace.folder))
            tracker.attach(run.id, begun.files)
            executor = Executor(
                made=dict(self.assumed),
                run_id=run.id,
                planner=self.planner,
                ledger=self.ledger,
                tracker=tracker,
                store=self.store,
                processes=processes,
                display=NotedProgress(display, self.workspace.run_dir(run.id)),
                tracked_run=tracked,
            )
            names = []
            for decision in self._ordered(decisions):
                ready = set(self.dag.upstream(decision.stage)) <= executor.made.keys()
                if decision.action == "cached" and ready:
                    executor.reuse(decision)
                else:
                    names.append(decision.stage)
            status: Literal["succeeded", "failed", "stopped"] = "failed"
            try:
                interruption.carry_out(lambda: runner(executor, names))
                status = "succeeded"
            except StageFailed as failure:
                if failure.refused:
                    raise UserErrors(failure.sentences) from None
                raise
            finally:
                status = "stopped" if interruption.requested else status
                self._close(replace(run, status=status, ended=time.time()), executor)
            return run

    def _close(self, run: Run, executor: "Executor") -> None:
        """Say in every place how a run ended: in the ledger first, as time may be short."""
        from posttrain.views.tracking.projection import run_finished

        assert run.ended is not None
        tracker, tracked = executor.tracker, executor.tracked_run
        stages = self.ledger.stage_runs(run.id)
        tracker.finish(tracked, run_finished(run, stages))
        external = tracker.external_id(tracked)
        if external is None:
            executor.late[run.id] = tracked
        tracker.when_closed(executor.note_late_ids)
        self.ledger.finish_run(
            run.id,
            run.status,
            run.ended,
            mlflow_run_id=external,
            prefect_run_id=executor.prefect_run_id,
        )
        executor.processes.close()
        self.records = dict(executor.results)
        new = any(record.status != "cached" for record in self.records.values())
        if new or run.status == "succeeded":
            self._write_state()
        self.stat_cache.save()

    def refuse_missing(self, decisions: Iterable[Decision]) -> None:
        """Refuse a plan with stages that cannot be decided as their files are missing."""
        self.planner.refuse_absent(each.stage for each in decisions if each.action == "missing")

    def refuse_places(self, *, makes: bool) -> None:
        """Refuse what stands in the way of writing results, before any is made.

        Args:
            makes: Whether there is a stage to run, whose results are kept by DVC.

        Raises:
            UserError: The lock file cannot be read, a file lies where a folder is to be, or DVC
                cannot work here.

        """
        if self.keeps_lock:
            check_lock(self.recipe.directory / LOCK_FILE)
        if makes:
            check_repository(self.workspace.root)
        for stage in self.dag.stages.values():
            for path in stage.outputs().values():
                self.workspace.require_folder(str(path), f"stage '{stage.name}'")

    def _ordered(self, decisions: Sequence[Decision]) -> list[Decision]:
        by_name = {decision.stage: decision for decision in decisions}
        return [by_name[name] for name in self.dag.order() if name in by_name]

    def _write_state(self) -> None:
        """Let dvc.yaml, params.yaml, dvc.lock and posttrain.lock say what is there."""
        beside = self.workspace.tries if self.tries else None
        if beside is not None:
            beside.mkdir(parents=True, exist_ok=True)
        write_generated(beside or self.recipe.directory, self.generated())
        # Of a file that is not there dvc.lock goes on saying what it was.
        made = {
            name: {record.role: record for record in run.outputs}
            for name, run in self.records.items()
            if not self.dag.stages[name].absent()
        }
        if self.keeps_lock:
            entries = self.entries()
            refresh_lock(self.workspace, self.store, entries, made, self.stat_cache, beside=beside)
            if beside is None:
                keep_committed(self.recipe.directory, self.ledger, self.records, self.dag.stages)


@contextmanager
def open_session(path: Path, overrides: Sequence[str] = ()) -> Iterator[Session]:
    """Read the recipe, resolve its DAG and open the ledger; heavy libraries stay closed."""
    recipe = load_recipe(path, overrides)
    workspace = Workspace.of(recipe)
    dag = recipe.resolve(workspace.root)
    stat_cache = StatCache.load(workspace.state / "digests.json")
    store = DvcStore(workspace.root, recipe.directory)
    with _ledger_of(workspace) as ledger, plugged(recipe.plugins):
        known = learn_committed(recipe.directory, ledger)
        planner = Planner(recipe, dag, workspace, ledger, stat_cache, store, committed=known)
        yield Session(recipe, dag, workspace, ledger, store, stat_cache, planner)
        stat_cache.save()


@contextmanager
def _ledger_of(workspace: Workspace) -> Iterator[Ledger]:
    """Open the project's ledger; where none can be made, one for as long as somebody looks.

    What writes holds the workspace first, which is refused there.
    """
    ledger_at = ledger_location(workspace.root)
    own = Path(ledger_at)
    with ExitStack() as opened:
        state = workspace.state if workspace.state.exists() else workspace.root
        makes = own.exists() or os.access(state, os.W_OK)
        if own.is_relative_to(workspace.state) and not makes:
            folder = opened.enter_context(TemporaryDirectory(prefix="posttrain-ledger-"))
            ledger_at = str(Path(folder) / own.name)
        else:
            _say_new(ledger_at, workspace)
        yield opened.enter_context(open_ledger(ledger_at))


def _say_unseen(decisions: Iterable[Decision]) -> None:
    for line in chain.from_iterable(each.unseen for each in decisions):
        print(f"note: {line}", file=sys.stderr)


def _say_new(ledger_at: str, workspace: Workspace) -> None:
    """Say that a ledger that the environment names is begun: to a typo, nothing ever ran."""
    path = Path(ledger_at)
    if not (path.is_relative_to(workspace.state) or "://" in ledger_at or path.exists()):
        print(f"note: there is no ledger at {path.absolute()} yet; it is begun", file=sys.stderr)
