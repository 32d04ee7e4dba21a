"""What Prefect's scheduler lacks: missed runs, runs that are gone, further attempts, and the notes.

Prefect says when; the notes say what became of it. Each step is one schedule's own, and can be
repeated: what is wrong with one schedule is noted there, and the others go on.
"""

import json
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from posttrain.operations.schedule.clock import ClockWatch, instant
from posttrain.operations.schedule.declared import Schedule
from posttrain.operations.schedule.notes import Declaration, Notes, Tick
from posttrain.operations.schedule.policy import TickDecision, decide
from posttrain.operations.schedule.server import Server, clocks, is_paused, version_of
from posttrain.operations.schedule.times import ticks_between
from posttrain.operations.schedule.worktree import STATE
from posttrain.stage.errors import UserError, first_line

UPKEEP_SECONDS = 10.0
# A machine that goes down under a run is not the recipe's fault; five times, it may be.
_CRASHES = 5
_SLACK_SECONDS = 60.0
_NOTIFY_SECONDS = 60
_FINAL = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")


def here() -> dict[str, str]:
    """Name this machine: the kernel that runs, and what it is called."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return {"boot": boot, "host": socket.gethostname()}
    return {"boot": "", "host": socket.gethostname()}


def run_lock(root: Path, schedule: str) -> FileLock:
    """The lock that the process of a run holds for as long as it lives."""
    place = root / STATE / schedule
    place.mkdir(parents=True, exist_ok=True)
    return FileLock(place / "run.lock")


@dataclass
class Keeper:
    """Keeps notes and Prefect in step for one project; the rest is of this worker alone."""

    root: Path
    notes: Notes
    server: Server
    say: Any
    busy: set[str] = field(default_factory=set)
    """Flow runs that this worker is about, by id."""
    children: dict[str, int] = field(default_factory=dict)
    """The processes of those that have one."""
    _kept: float = float("-inf")
    _troubles: dict[str, str] = field(default_factory=dict)
    _paused: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._clock = ClockWatch(self.root)

    def cycle(self, found: list[Any]) -> list[Any]:
        """Do what is due; returns those of the due flow runs that may start."""
        if (jump := self._clock.jumped()) is not None:
            self._trouble("", f"the clock jumped by {jump:+.0f} s: nothing is decided until it "
                          "has stood still for 10 minutes, or goes back")  # fmt: skip
            return []
        declarations = self.notes.declarations()
        if found or time.monotonic() - self._kept > UPKEEP_SECONDS:
            self._keep(declarations)
            self._kept = time.monotonic()
        chosen = []
        for run in found:
            with self._guarded(str(run.parameters.get("schedule"))):
                chosen += [run] * self._admit(declarations, run)
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
                    self._settle(each, schedule, deployment)
        live = self.notes.live()
        runs = self.server.runs([str(tick.data.get("flow_run_id")) for tick in live
                                 if tick.data.get("flow_run_id")])  # fmt: skip
        for tick in live:
            with self._guarded(tick.schedule):
                self._look_after(tick, runs, declarations, deployments)
        ours = {str(each.id) for each in deployments.values()}
        for run in runs.values():
            if str(run.deployment_id) in ours and run.state_type.value not in _FINAL:
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
            return None
        paused, seen = is_paused(deployment), self._paused.get(each.name, False)
        self._paused[each.name] = paused
        if paused == each.paused:
            return deployment
        if paused != seen:
            event = "paused" if paused else "resumed"
            self.notes.add(each.name, 0.0, event, f"{event} in Prefect")
        else:
            self.server.pause(deployment, paused=each.paused)
            self._paused[each.name] = each.paused
        return None

    def _settle(self, each: Declaration, schedule: Schedule, deployment: Any) -> None:
        """Decide about every tick that is missed and has no note."""
        now, config = time.time(), schedule.config
        reach = config.grace_seconds + _SLACK_SECONDS
        after = max(each.since, self.notes.watermark(each.name) - reach)
        if after > now - config.grace_seconds:
            return
        used = clocks(deployment)
        ticks = sorted({t for clock in used for t in ticks_between(clock, after, now)})
        known = self.notes.known(each.name, after, ticks)
        decisions = decide(config.missed, ticks, known=known, now=now, grace=config.grace_seconds)
        if not decisions:
            return
        runs = self.server.runs_between(deployment, decisions[0].due - 1, decisions[-1].due + 1)
        skipped: list[TickDecision] = []
        for decision in decisions:
            run = runs.get(decision.due)
            if run is None or not (_was_taken(run) or run.state_type.value in _FINAL):
                if not decision.runs:
                    skipped.append(decision)
                    continue
                what, said = "waiting", decision.reason
            elif _was_taken(run):
                what, said = "waiting", "it waits in Prefect"
            else:
                what, said = "skipped", f"Prefect has it as {run.state_name}; its note is lost"
            flow_run_id = str(run.id) if run is not None else None
            self._skip(schedule, skipped)
            self.notes.add(each.name, decision.due, what, said, flow_run_id=flow_run_id)
        self._skip(schedule, skipped)

    def _skip(self, schedule: Schedule, skipped: list[TickDecision]) -> None:
        """Note as one what is skipped together: a month of minutes is one line."""
        if skipped:
            first, last = skipped[0], skipped[-1]
            until = instant(last.due, schedule.config.timezone)
            many = f"{len(skipped)} of them, to {until}: " if len(skipped) > 1 else ""
            self.notes.add(schedule.name, first.due, "skipped", many + first.reason, until=last.due)
            skipped.clear()

    def _admit(self, declarations: dict[str, Declaration], run: Any) -> bool:
        """Return whether a flow run that is due may start now; its tick has a note then."""
        name = run.parameters.get("schedule")
        if name is None or run.deployment_id is None:
            return True  # Somebody else's deployment in this pool.
        if name not in declarations:
            self.server.skip(str(run.id), f"no recipe declares the schedule '{name}'")
            return False
        each, due = declarations[name], run.expected_start_time.timestamp()
        schedule = Schedule.from_text(each.text)
        tick = self.notes.tick(name, due)
        if tick is None and run.auto_scheduled and due not in self.notes.known(name, due, [due]):
            if time.time() - due > schedule.config.grace_seconds and not _was_taken(run):
                reason = "it was laid out before the schedule was declared, changed or resumed"
                self.notes.add(name, due, "skipped", reason)
                self.server.skip(str(run.id), reason)
                return False
        elif tick is None and run.auto_scheduled:
            self.server.skip(str(run.id), "it was missed, and skipped with others")
            return False
        if tick is None:
            kind = "scheduled" if run.auto_scheduled else "manual"
            said = "its time has come" if run.auto_scheduled else "asked for in Prefect"
            self.notes.add(name, due, "waiting", said, kind=kind, flow_run_id=str(run.id))
            return True
        return self._may_start(tick, run)

    def _may_start(self, tick: Tick, run: Any) -> bool:
        holder = tick.data.get("flow_run_id")
        if tick.over:
            self.server.close(str(run.id), tick)
        elif tick.status == "waiting" and holder is None:
            self.notes.about(tick, "note", "its flow run is there", flow_run_id=str(run.id))
        elif holder != str(run.id):
            self.server.skip(str(run.id), f"flow run {holder} is of the same instant")
        return (
            tick.status == "waiting"
            and holder in (None, str(run.id))
            and tick.data.get("not_before", 0.0) <= time.time() + 1.0
        )

    def _close_if_over(self, run: Any) -> None:
        tick = self._tick_of(run)
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
        if tick.schedule not in declarations:
            if tick.status != "running":
                self.notes.about(tick, "cancelled", f"the schedule was removed ({tick.reason})")
            return
        schedule = Schedule.from_text(declarations[tick.schedule].text)
        if tick.status == "waiting":
            deployment = deployments.get(tick.schedule)
            if deployment is not None and not is_paused(deployment):
                self._look_after_waiting(tick, run, schedule, deployment)
        elif tick.status == "running":
            self._look_after_running(tick, run)
        else:
            self.conclude(tick, schedule)

    def _look_after_waiting(
        self, tick: Tick, run: Any, schedule: Schedule, deployment: Any
    ) -> None:
        if run is None:
            made = self.server.lay_out(deployment, schedule, tick)
            self.notes.about(tick, "note", "its flow run was made", flow_run_id=made)
        elif run.state_type.value == "CANCELLED":
            self.notes.about(tick, "cancelled", f"cancelled in Prefect: {run.state.message}")
        elif run.state_type.value in _FINAL:
            self.server.again(str(run.id), tick.data.get("not_before") or time.time(), tick.reason)
        elif run.state_type.value in ("PENDING", "RUNNING"):
            # A worker took it and is gone, before its process could say that it is there.
            since = time.time() - run.state.timestamp.timestamp()
            if since > _SLACK_SECONDS and self._is_free(tick):
                self.server.again(str(run.id), time.time(), "its worker is gone")

    def _look_after_running(self, tick: Tick, run: Any) -> None:
        """A run of another worker's, or of one that is gone."""
        begun, now = tick.data, here()
        state = run.state_type.value if run is not None else None
        if begun.get("boot") == now["boot"]:
            gone = self._is_free(tick)
        elif begun.get("host") == now["host"]:
            gone = True  # The machine was started again since.
        else:
            gone = state in (None, "CRASHED", "FAILED", "CANCELLED")
        if gone:
            self.crashed(tick, run, "its process is gone (killed, or the machine went down)")

    def _is_free(self, tick: Tick) -> bool:
        """Return whether no process of this kernel works for the schedule, and its notes end so."""
        try:
            with run_lock(self.root, tick.schedule).acquire(timeout=0):
                return self.notes.tick(tick.schedule, tick.due) == tick
        except Timeout:
            return False

    def beat(self) -> None:
        """Show that the worker lives."""
        place = self.root / ".posttrain" / "services" / "worker.beat"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()

    def held_back(self, run: Any) -> None:
        """Note what Prefect's limit of one made of a run that is due."""
        tick = self._tick_of(run)
        if tick is None or tick.status != "waiting":
            return
        if run.state_name == "AwaitingConcurrencySlot" and not tick.reason.startswith("queued"):
            self.notes.about(tick, "waiting", "queued: the run before it still runs")
        elif run.state_name == "Cancelled":
            said = "the run before it still runs (overlap: cancel)"
            self.notes.about(tick, "skipped", said)

    def _tick_of(self, run: Any) -> Tick | None:
        due = run.expected_start_time.timestamp()
        return self.notes.tick(str(run.parameters.get("schedule")), due)

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
                self.crashed(tick, now, "its process ended without a word; see its log")
                tick = self.notes.tick(before.schedule, before.due) or tick
            if tick.over:
                self.server.close(str(run.id), tick)
            elif tick.status in ("failed", "crashed"):
                self.conclude(tick, Schedule.from_text(declaration.text))
        finally:
            self.busy.discard(str(run.id))

    def crashed(self, tick: Tick, run: Any, why: str) -> None:
        """Note that an attempt ended without a word of its own."""
        if run is not None and run.state_type.value in ("CANCELLING", "CANCELLED"):
            self.notes.about(tick, "cancelled", "cancelled in Prefect", claim="!")
            return
        self.notes.about(tick, "crashed", f"attempt {tick.attempt}: {why}", claim="!")

    def conclude(self, tick: Tick, schedule: Schedule) -> None:
        """Try a failure again while the policy allows it, else tell of it, once."""
        config = schedule.config
        allowed = tick.num_failed <= config.retries
        allowed = allowed and tick.num_crashed <= config.retries + _CRASHES
        flow_run_id = str(tick.data.get("flow_run_id"))
        if allowed and not tick.data.get("refused"):
            at = time.time() + config.retry_seconds
            reason = f"{tick.reason}; again in {config.retry_seconds:g} s"
            self.notes.about(tick, "waiting", reason, not_before=at)
            self.server.again(flow_run_id, at, reason)
            return
        said = notify(schedule, tick, self.root)
        self.notes.about(tick, "over", said)
        self.say(f"{tick.schedule} {instant(tick.due, config.timezone)}: {tick.status}: "
                 f"{tick.reason}; {said}; log: {tick.data.get('log')}")  # fmt: skip
        self.server.close(flow_run_id, tick)

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        """Keep what is wrong with one schedule from the others; a server away is for all."""
        from posttrain.operations.schedule.server import away

        try:
            yield
        except away():
            raise
        except Exception as error:  # noqa: BLE001
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


def _was_taken(run: Any) -> bool:
    """Return whether some worker had it already: then nobody can say that it was missed."""
    return run.state_name in ("AwaitingConcurrencySlot", "AwaitingRetry", "Pending", "Running")


def end_group(pid: int, *, gently: bool = False) -> None:
    """Signal a run that this process started, with all that it started."""
    import signal

    with suppress(ProcessLookupError, PermissionError):
        (os.kill if gently else os.killpg)(pid, signal.SIGTERM if gently else signal.SIGKILL)


def notify(schedule: Schedule, tick: Tick, root: Path) -> str:
    """Tell of a failure as the schedule asks; returns a sentence on what came of it."""
    notice = json.dumps(
        {"schedule": tick.schedule, "recipe": schedule.recipe, "due": instant(tick.due, "UTC"),
         "status": tick.status, "attempts": tick.attempt, "error": tick.reason,
         "log": tick.data.get("log"), "flow_run_id": tick.data.get("flow_run_id")}
    )  # fmt: skip
    said = ["over; no attempt is left"]
    if command := schedule.config.notify_command:
        try:
            done = subprocess.run(
                shlex.split(command), input=notice, cwd=root, text=True,
                capture_output=True, check=False, timeout=_NOTIFY_SECONDS,
            )  # fmt: skip
            said.append(f"notice given, exit code {done.returncode}")
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            said.append(f"the notice could not be given: {first_line(error)}")
    if url := schedule.config.notify_url:
        import httpx

        try:
            answer = httpx.post(url, content=notice, timeout=20.0,
                                headers={"Content-Type": "application/json"})  # fmt: skip
            said.append(f"notice sent, answered {answer.status_code}")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said.append(f"the notice could not be sent: {first_line(error)}")
    return "; ".join(said)
