"""What Prefect's scheduler lacks: missed runs, runs that are gone, further attempts, and the notes.

Prefect says when; the notes say what became of it. Each step is one schedule's own, and can be
repeated: what is wrong with one schedule is noted there, and the others go on.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posttrain.operations.schedule.admission import Begun, admit
from posttrain.operations.schedule.clock import ClockWatch
from posttrain.operations.schedule.missed import settle
from posttrain.operations.schedule.notes import Declaration, Tick
from posttrain.operations.schedule.outcome import (
    FINAL,
    Desk,
    conclude,
    end_group,
    look_after_running,
    look_after_waiting,
    note_crash,
    schedule_of,
    tick_of,
)
from posttrain.operations.schedule.recipes import Schedule
from posttrain.operations.schedule.server import clocks, is_away, is_paused, version_of
from posttrain.stage.errors import UserError, sentence

_UPKEEP_SECONDS = 10.0
_LEFT_SECONDS = 20.0


@dataclass
class Keeper(Desk):
    """Keeps notes and Prefect in step for one project; the rest is of this worker alone."""

    busy: set[str] = field(default_factory=set)
    """Flow runs that this worker is about, by id."""
    children: dict[str, int] = field(default_factory=dict)
    """The processes of those that have one."""
    _kept: float = float("-inf")
    _ours: set[str] = field(default_factory=set)
    _troubles: dict[tuple[str, str], str] = field(default_factory=dict)
    """What was said last, by schedule and step."""

    def __post_init__(self) -> None:
        self._clock = ClockWatch(self.root)

    def cycle(self, found: list[Any]) -> list[Any]:
        """Do what is due; returns those of the due flow runs that may start."""
        if (jump := self._clock.jumped()) is not None:
            said = f"the clock jumped by {jump:+.0f} s: nothing is decided until it has stood still"
            self._trouble("", "clock", f"{said} for 10 minutes, or goes back")
            return []
        declarations = self.notes.declarations()
        if found or time.monotonic() - self._kept > _UPKEEP_SECONDS:
            self._keep(declarations)
            self._kept = time.monotonic()
        chosen = []
        for run in found:
            name = str(run.parameters.get("schedule"))
            if run.deployment_id is None or "schedule" not in run.parameters:
                chosen.append(run)  # Somebody else's, in this pool.
            elif str(run.deployment_id) in self._ours and name in declarations:
                with self._guarded(name, "admit"):
                    chosen += [run] * admit(self, declarations, run)
        return chosen

    def _keep(self, declarations: dict[str, Declaration]) -> None:
        self.server.require_pool()
        deployments = self.server.deployments()
        for name in set(deployments) - set(declarations):
            with self._guarded(name, "withdraw"):
                if self._owns(deployments[name]):
                    self.say(f"{name}: no recipe declares it; taken out of Prefect")
                    self.server.withdraw(deployments[name])
        for name, each in declarations.items():
            with self._guarded(name, "settle"):
                schedule = Schedule.from_text(each.text)
                deployment = self._in_step(each, schedule, deployments.get(name))
                if deployment is not None and not is_paused(deployment):
                    settle(self, each, schedule, deployment)
        ours = {name: each for name, each in deployments.items() if self._owns(each)}
        self._ours = {str(each.id) for each in ours.values()}
        live = {str(tick.data.get("flow_run_id", number)): tick
                for number, tick in enumerate(self.notes.live())}  # fmt: skip
        runs = self.server.runs([tick.data["flow_run_id"] for tick in live.values()
                                 if "flow_run_id" in tick.data])  # fmt: skip
        for flow_run_id in dict.fromkeys([*live, *runs]):
            run, tick = runs.get(flow_run_id), live.get(flow_run_id)
            if tick is None and run is not None and str(run.deployment_id) in self._ours:
                tick = tick_of(self, run)
            if tick is not None:
                with self._guarded(tick.schedule, str(tick.due)):
                    self._look_after(tick, run, declarations, ours.get(tick.schedule))

    def _owns(self, deployment: Any) -> bool:
        """Return whether a deployment was made from these notes, wherever they lay then."""
        given = deployment.job_variables
        place = str(given.get("working_dir"))
        # A copy of a project has a copy of its notes.
        copied = f"sqlite:///{self.root}/" in self.notes.url and (Path(place) / ".dvc").is_dir()
        return place == str(self.root) or (given.get("notes") == self.notes.id and not copied)

    def _in_step(self, each: Declaration, schedule: Schedule, deployment: Any) -> Any:
        """Bring the deployment to what is declared, and note a pause in Prefect's pages."""
        if deployment is not None and not self._owns(deployment):
            raise UserError(
                f"the deployment '{each.name}' of this Prefect server is of "
                f"{deployment.job_variables.get('working_dir')}; "
                "give the schedule of one of the two another name"
            )
        made_of = (version_of(schedule), self.notes.id)
        if deployment is None or made_of != (
            deployment.version, deployment.job_variables.get("notes")
        ):  # fmt: skip
            paused = each.paused if deployment is None else is_paused(deployment)
            self._deploy(schedule, paused=paused)
            self.say(f"{each.name}: {'made' if deployment is None else 'changed'} in Prefect")
            if deployment is None and paused != each.paused_in_prefect:
                self.notes.add(each.name, 0.0, "shown", "", paused_in_prefect=paused)
            return None
        paused = is_paused(deployment)
        if paused == each.paused == each.paused_in_prefect:
            return deployment
        if paused != each.paused_in_prefect:
            event = "paused" if paused else "resumed"
            self.notes.add(each.name, 0.0, event, f"{event} in Prefect", paused_in_prefect=paused)
        else:
            if each.paused or clocks(deployment):
                self.server.pause(deployment, paused=each.paused)
            else:
                self._deploy(schedule, paused=False)  # Its clock was taken away there.
            self.notes.add(each.name, 0.0, "shown", "", paused_in_prefect=each.paused)
        return None

    def _deploy(self, schedule: Schedule, *, paused: bool) -> None:
        owner = {"working_dir": str(self.root), "notes": self.notes.id}
        self.server.deploy(schedule, owner, paused=paused)

    def _look_after(
        self, tick: Tick, run: Any, declarations: dict[str, Declaration], deployment: Any
    ) -> None:  # fmt: skip
        """See that a tick comes to its end, and that Prefect says so."""
        each = declarations.get(tick.schedule)
        schedule = Schedule.from_text(each.text) if each is not None else None
        if run is not None and str(run.id) in self.busy:
            stopped = run.state_type.value in ("CANCELLING", "CANCELLED", "CRASHED")
            if (stopped or tick.status == "cancelled") and str(run.id) in self.children:
                end_group(self.children[str(run.id)])
        elif tick.over:
            if run is not None and run.state_type.value not in FINAL:
                self.server.show(str(run.id), tick)
        elif tick.status == "running":
            look_after_running(self, tick, run, schedule)
        elif schedule is None:
            self.notes.about(tick, "cancelled", f"the schedule was removed ({tick.reason})")
        elif tick.status != "waiting":
            # Who noted it concludes it, unless that one is gone.
            if time.time() - (tick.ended or 0.0) > _LEFT_SECONDS:
                conclude(self, tick, run, schedule)
        elif deployment is not None and not is_paused(deployment):
            look_after_waiting(self, tick, run, schedule, deployment)

    def beat(self) -> None:
        """Show that the worker lives."""
        place = self.root / ".posttrain" / "services" / "worker.beat"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()

    def ended(self, run: Any, begun: Begun | None, *, stopping: bool) -> None:
        """Conclude an attempt that was not begun, or whose process is gone, however it went."""
        try:
            if (pid := self.children.pop(str(run.id), None)) is not None:
                end_group(pid)  # What it started may outlive it.
            tick = tick_of(self, run)
            if tick is None:
                return
            if tick.status == "running" and stopping:
                reason = f"attempt {tick.attempt} was stopped with the worker; it goes on"
                self.notes.about(tick, "waiting", reason, claim="!")
            elif tick.status == "running":
                now = self.server.runs([str(run.id)]).get(str(run.id))
                note_crash(self, tick, now, "its process ended without a word; see its log")
            elif begun is not None and not stopping and tick.status == "waiting":
                said = "its process ended before it began; see its log"
                self.notes.about(tick, "crashed", said, log=str(begun.log))
            conclude(self, tick_of(self, run), run, schedule_of(self, run))
        finally:
            self.busy.discard(str(run.id))

    @contextmanager
    def _guarded(self, name: str, step: str) -> Iterator[None]:
        """Keep what is wrong with one schedule from the others; a server away is for all."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the boundary of one schedule
            if is_away(error):
                raise
            self._trouble(name, step, sentence(error))
        else:
            self._troubles.pop((name, step), None)

    def _trouble(self, name: str, step: str, said: str) -> None:
        if self._troubles.get((name, step)) != said:
            self._troubles[name, step] = said
            self.say(f"{name or 'all schedules'}: {said}")
            if name:
                self.notes.add(name, time.time(), "skipped", said, kind="trouble")
