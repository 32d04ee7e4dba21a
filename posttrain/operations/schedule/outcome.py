"""See that what began comes to an end: runs that are gone, further attempts, and who is told."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from posttrain.operations.schedule.clock import boot_id, instant
from posttrain.operations.schedule.notes import ScheduleNotes, Tick
from posttrain.operations.schedule.recipes import Schedule
from posttrain.operations.schedule.server import Server
from posttrain.operations.schedule.worktree import STATE
from posttrain.pipeline.notices import send_notice

SLACK_SECONDS = 60.0
FINAL = ("COMPLETED", "FAILED", "CANCELLED", "CRASHED")
# A machine that goes down under a run is not the recipe's fault; five times, it may be.
_CRASHES = 5
# What Prefect says of a run that it cancels, when it is to start or later, as one runs already.
_LIMIT_REACHED = "Deployment concurrency limit reached."


@dataclass
class Desk:
    """What decisions are made with: a project, its notes, its Prefect server, and its log."""

    root: Path
    notes: ScheduleNotes
    server: Server
    say: Callable[..., None]


def here() -> dict[str, str]:
    """Name this machine: the kernel that runs, and what it is called."""
    return {"boot": boot_id(), "host": socket.gethostname()}


def run_lock(root: Path, schedule: str) -> FileLock:
    """The lock that the process of a run holds for as long as it lives."""
    place = root / STATE / schedule
    place.mkdir(parents=True, exist_ok=True)
    return FileLock(place / "run.lock")


def look_after_waiting(
    desk: Desk, tick: Tick, run: Any, schedule: Schedule, deployment: Any
) -> None:
    """See that a tick which waits has a flow run that waits too."""
    if run is None:
        made = desk.server.lay_out(deployment, schedule, tick)
        desk.notes.about(tick, "note", "its flow run was made", flow_run_id=made)
    elif run.state_name == "AwaitingConcurrencySlot":
        if not tick.reason.startswith("queued"):
            desk.notes.about(tick, "waiting", "queued: the run before it still runs")
    elif run.state_type.value == "CANCELLED" and run.state.message == _LIMIT_REACHED:
        desk.notes.about(tick, "skipped", "the run before it still runs (overlap: cancel)")
    elif run.state_type.value == "CANCELLED":
        why = f": {run.state.message}" if run.state.message else ""
        desk.notes.about(tick, "cancelled", f"cancelled in Prefect{why}")
    elif run.state_type.value in FINAL:
        desk.server.show(str(run.id), tick)
    elif run.state_type.value in ("PENDING", "RUNNING"):
        # A worker took it and is gone, before its process could say that it is there.
        since = time.time() - run.state.timestamp.timestamp()
        if since > SLACK_SECONDS and _is_free(desk, tick):
            desk.server.show(str(run.id), tick)


def look_after_running(desk: Desk, tick: Tick, run: Any, schedule: Schedule | None) -> None:
    """A run of another worker's, or of one that is gone."""
    begun, now = tick.data, here()
    if begun.get("boot") == now["boot"]:
        gone = _is_free(desk, tick)
    elif begun.get("host") == now["host"]:
        gone = True  # The machine was started again since.
    else:
        gone = run is None or run.state_type.value in FINAL[1:]
    if gone and note_crash(
        desk, tick, run, "its process is gone (killed, or the machine went down)"
    ):
        conclude(desk, desk.notes.tick(tick.schedule, tick.due), run, schedule)


def _is_free(desk: Desk, tick: Tick) -> bool:
    """Return whether no process of this kernel works for the schedule, and its notes end so."""
    try:
        with run_lock(desk.root, tick.schedule).acquire(timeout=0):
            return desk.notes.tick(tick.schedule, tick.due) == tick
    except Timeout:
        return False


def tick_of(desk: Desk, run: Any) -> Tick | None:
    """The tick that a flow run is of, if there is a note of it."""
    due = run.expected_start_time.timestamp()
    return desk.notes.tick(str(run.parameters.get("schedule")), due)


def schedule_of(desk: Desk, run: Any) -> Schedule | None:
    """The schedule that a flow run is of, if it is declared still."""
    each = desk.notes.declarations().get(str(run.parameters.get("schedule")))
    return None if each is None else Schedule.from_text(each.text)


def note_crash(desk: Desk, tick: Tick, run: Any, why: str) -> bool:
    """Note that an attempt ended without a word of its own; False where it was noted before."""
    if run is not None and run.state_type.value in ("CANCELLING", "CANCELLED"):
        return desk.notes.about(tick, "cancelled", "cancelled in Prefect", claim="!")
    return desk.notes.about(tick, "crashed", f"attempt {tick.attempt}: {why}", claim="!")


def conclude(desk: Desk, tick: Tick | None, run: Any, schedule: Schedule | None) -> None:
    """Try a failure again while the policy allows it, else tell of it, once; Prefect hears of it.

    Who notes an end concludes it, so that of two workers one does.
    """
    if tick is None or schedule is None:
        return
    config = schedule.config
    if tick.status in ("failed", "crashed") and not tick.over:
        allowed = tick.num_failed <= config.retries
        allowed = allowed and tick.num_crashed <= config.retries + _CRASHES
        if allowed and not tick.data.get("refused"):
            at = time.time() + config.retry_seconds
            reason = f"{tick.reason}; again in {config.retry_seconds:g} s"
            desk.notes.about(tick, "waiting", reason, not_before=at)
        else:
            said = notify(schedule, tick, desk.root)
            desk.notes.about(tick, "over", said)
            desk.say(f"{tick.schedule} {instant(tick.due, config.timezone)}: {tick.status}: "
                     f"{tick.reason}; {said}; log: {tick.data.get('log')}")  # fmt: skip
        tick = desk.notes.tick(tick.schedule, tick.due) or tick
    if run is not None:
        desk.server.show(str(run.id), tick)


def end_group(pid: int, *, gently: bool = False) -> None:
    """Signal a run that this process started, with all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        (os.kill if gently else os.killpg)(pid, signal.SIGTERM if gently else signal.SIGKILL)


def notify(schedule: Schedule, tick: Tick, root: Path) -> str:
    """Tell of a failure as the schedule asks; returns a sentence on what came of it."""
    notice = json.dumps(
        {"event": "failure", "schedule": tick.schedule, "recipe": schedule.recipe,
         "due": instant(tick.due, "UTC"),
         "status": tick.status, "attempts": tick.attempt, "error": tick.reason,
         "log": tick.data.get("log"), "flow_run_id": tick.data.get("flow_run_id")}
    )  # fmt: skip
    config = schedule.config
    if "failure" not in config.notify_on:
        return "over; no attempt is left"
    url = None if config.automation else config.notify_url
    sent = send_notice(notice, url=url, command=config.notify_command, root=root)
    return "; ".join(["over; no attempt is left", *sent])
