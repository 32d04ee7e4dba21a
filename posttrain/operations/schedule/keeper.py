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

from posttrain.operations.schedule.admission import admit
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
    tick_of,
)
from posttrain.operations.schedule.recipes import Schedule
from posttrain.operations.schedule.server import is_away, is_paused, version_of
from posttrain.stage.errors import UserError, first_line

_UPKEEP_SECONDS = 10.0


@dataclass
class Keeper(Desk):
    """Keeps notes and Prefect in step for one project; the rest is of this worker alone."""

    busy: set[str] = field(default_factory=set)
    """Flow runs that this worker is about, by id."""
    children: dict[str, int] = field(default_factory=dict)
    """The processes of those that have one."""
    _kept: float = float("-inf")
    _troubles: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._clock = ClockWatch(self.root)

    def cycle(self, found: list[Any]) -> list[Any]:
        """Do what is due; returns those of the due flow runs that may start."""
        if (jump := self._clock.jumped()) is not None:
            self._trouble("", f"the clock jumped by {jump:+.0f} s: nothing is decided until it "
                          "has stood still for 10 minutes, or goes back")  # fmt: skip
            return []
        declarations = self.notes.declarations()
        if found or time.monotonic() - self._kept > _UPKEEP_SECONDS:
            self._keep(declarations)
            self._kept = time.monotonic()
        chosen = []
        for run in found:
            with self._guarded(str(run.parameters.get("schedule"))):
                chosen += [run] * admit(self, declarations, run)
        return chosen

    def _keep(self, declarations: dict[str, Declaration]) -> None:
        self.server.require_pool()
        deployments = self.server.deployments()
        for name in set(deployments) - set(declarations):
            with self._guarded(name):
                if _owner(deployments[name]) == str(self.root):
                    self.say(f"{name}: no recipe declares it; taken out of Prefect")
                    self.server.withdraw(deployments[name])
        for name, each in declarations.items():
            with self._guarded(name):
                schedule = Schedule.from_text(each.text)
                deployment = self._in_step(each, schedule, deployments.get(name))
                if deployment is not None and not is_paused(deployment):
                    settle(self, each, schedule, deployment)
        live = self.notes.live()
        runs = self.server.runs([str(tick.data.get("flow_run_id")) for tick in live
                                 if tick.data.get("flow_run_id")])  # fmt: skip
        for tick in live:
            with self._guarded(tick.schedule):
                self._look_after(tick, runs, declarations, deployments)
        ours = {str(each.id) for each in deployments.values()}
        for run in runs.values():
            if str(run.deployment_id) in ours and run.state_type.value not in FINAL:
                with self._guarded(str(run.parameters.get("schedule"))):
                    self._close_if_over(run)

    def _in_step(self, each: Declaration, schedule: Schedule, deployment: Any) -> Any:
        """Bring the deployment to what is declared, and note a pause in Prefect's pages."""
        owner = str(self.root) if deployment is None else _owner(deployment)
        moved_here = owner != str(self.root)
        if moved_here and (Path(owner) / ".dvc").is_dir():
            raise UserError(
                f"the deployment '{each.name}' of this Prefect server is of {owner}; "
                "give the schedule of one of the two another name"
            )
        if deployment is None or moved_here or deployment.version != version_of(schedule):
            paused = each.paused if deployment is None else is_paused(deployment)
            self.server.deploy(schedule, str(self.root), paused=paused)
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
            self.server.pause(deployment, paused=each.paused)
            self.notes.add(each.name, 0.0, "shown", "", paused_in_prefect=each.paused)
        return None

    def _close_if_over(self, run: Any) -> None:
        tick = tick_of(self, run)
        if tick is None or not tick.over:
            return
        if (pid := self.children.get(str(run.id))) is not None and tick.status == "cancelled":
            end_group(pid)
        elif str(run.id) not in self.busy:
            self.server.close(str(run.id), tick)

    def _look_after(
        self, tick: Tick, runs: dict[str, Any], declarations: dict[str, Declaration],
        deployments: dict[str, Any],
    ) -> None:  # fmt: skip
        """See that a tick which is not over comes to its end."""
        run = runs.get(str(tick.data.get("flow_run_id")))
        if run is not None and str(run.id) in self.busy:
            over = run.state_type.value in ("CANCELLING", "CANCELLED", "CRASHED")
            if over and (pid := self.children.get(str(run.id))):
                self.say(f"{tick.schedule}: {run.state_name} in Prefect; its process is ended")
                end_group(pid)
            return
        if tick.status == "running":
            look_after_running(self, tick, run)
        elif tick.schedule not in declarations:
            self.notes.about(tick, "cancelled", f"the schedule was removed ({tick.reason})")
        elif tick.status != "waiting":
            conclude(self, tick, Schedule.from_text(declarations[tick.schedule].text))
        elif (made := deployments.get(tick.schedule)) is not None and not is_paused(made):
            schedule = Schedule.from_text(declarations[tick.schedule].text)
            look_after_waiting(self, tick, run, schedule, made)

    def beat(self) -> None:
        """Show that the worker lives."""
        place = self.root / ".posttrain" / "services" / "worker.beat"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()

    def ended(self, run: Any, before: Tick, stopping: bool) -> None:
        """Conclude an attempt whose process is gone, however it went."""
        try:
            # What it started may outlive it.
            end_group(self.children.pop(str(run.id)))
            tick = self.notes.tick(before.schedule, before.due)
            declaration = self.notes.declarations().get(before.schedule)
            if tick is None or declaration is None:
                return
            now = self.server.runs([str(run.id)]).get(str(run.id))
            if stopping and tick.status == "running":
                reason = f"attempt {tick.attempt} was stopped with the worker; it goes on"
                self.notes.about(tick, "waiting", reason, claim="!")
                self.server.again(str(run.id), time.time(), reason)
            elif tick.status == "running":
                note_crash(self, tick, now, "its process ended without a word; see its log")
                tick = self.notes.tick(before.schedule, before.due) or tick
            if tick.over:
                self.server.close(str(run.id), tick)
            elif tick.status in ("failed", "crashed"):
                conclude(self, tick, Schedule.from_text(declaration.text))
        finally:
            self.busy.discard(str(run.id))

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """Keep what is wrong with one schedule from the others; a server away is for all."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the boundary of one schedule
            if is_away(error):
                raise
            said = (
                str(error)
                if isinstance(error, UserError)
                else f"{type(error).__name__}: {first_line(error)}"
            )
            self._trouble(name, said)
        else:
            self._troubles.pop(name, None)

    def _trouble(self, name: str, said: str) -> None:
        if self._troubles.get(name) != said:
            self._troubles[name] = said
            self.say(f"{name or 'all schedules'}: {said}")
            if name:
                self.notes.add(name, time.time(), "skipped", said, kind="trouble")


def _owner(deployment: Any) -> str:
    return str(deployment.job_variables.get("working_dir"))
