"""Make the journal and the Prefect server agree, whatever died in between.

Every step can be repeated: the server is told first and the journal written second, so a step that
was cut short is done again, and an idempotency key or a compare-and-set makes the second time
harmless.
"""

import json
import shlex
import subprocess
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from posttrain.operations.schedule.admit import settle_missed
from posttrain.operations.schedule.journal import Journal, Tick
from posttrain.operations.schedule.schedule import CronSchedule, paused_or_resumed
from posttrain.operations.schedule.server import FlowRun, Server, deployment_digest, failure
from posttrain.operations.schedule.times import next_ticks, ticks_between
from posttrain.provenance.ledger.processes import is_gone, this_process

# A machine that goes down under a run is not the recipe's fault; five times, it may be.
CRASHES = 5
_NOTIFY_SECONDS = 60
_TAKEN_SECONDS = 60


def sync(journal: Journal, server: Server, pool: str, root: Path) -> None:
    """Bring the deployments to what the journal declares, and take over pauses made by hand."""
    told = journal.deployed()
    for name, (text, removed) in told.items():
        if removed and text is not None:
            server.withdraw(name)
            journal.set_deployed(name, None)
    schedules = journal.schedules()
    paused = server.paused([schedule.name for schedule in schedules]) if schedules else {}
    for schedule in schedules:
        digest = deployment_digest(schedule, pool)
        if told[schedule.name][0] != digest or schedule.name not in paused:
            server.deploy(schedule, str(root))
        elif paused[schedule.name] != schedule.paused:
            journal.put(paused_or_resumed(schedule, paused=paused[schedule.name]))
            digest = deployment_digest(journal.schedule(schedule.name), pool)
        else:
            continue
        journal.set_deployed(schedule.name, digest)


def reconcile(
    journal: Journal, server: Server, root: Path, *, ours: Collection[int], others: bool = False
) -> list[Tick]:
    """Settle missed ticks and every one that is not over; returns those to stop (cancelled).

    `others` start the runs: between taking one and asking the journal they are given a minute.
    """
    schedules = {schedule.name: schedule for schedule in journal.schedules()}
    for schedule in schedules.values():
        settle_missed(journal, schedule, time.time())
        _lay_out(journal, server, schedule)
    live = journal.live()
    runs = server.read([tick.flow_run_id for tick in live if tick.flow_run_id])
    stop = []
    for tick in live:
        run = runs.get(tick.flow_run_id or "")
        owner = schedules.get(tick.schedule)
        if owner is None:
            _orphaned(journal, tick)
        elif tick.status == "running":
            if run is not None and run.state in ("CANCELLING", "CANCELLED"):
                stop.append(tick)
            _check_process(journal, tick, run, ours)
        elif tick.status == "waiting":
            if not (others and run is not None and _just_taken(run)):
                _check_waiting(journal, server, owner, tick, run)
        else:
            _after_failure(journal, server, owner, tick, root)
    return stop


def _lay_out(journal: Journal, server: Server, schedule: CronSchedule) -> None:
    """Flow runs for what is due and not missed, and for what comes next."""
    if schedule.paused:
        return
    now = time.time()
    begun = max(schedule.since, now - schedule.grace_seconds)
    known = journal.known(schedule.name, begun)
    for due in [*ticks_between(schedule, begun - 1e-3, now), *next_ticks(schedule, now, 1)]:
        if due not in known and not server.has_laid_out(schedule, due):
            server.lay_out(schedule, due)


def _orphaned(journal: Journal, tick: Tick) -> None:
    """Its schedule was removed: what runs may end, the rest is called off."""
    if tick.status != "running":
        reason = f"the schedule was removed ({tick.reason})"
        journal.change(tick, {"status": "cancelled", "reason": reason, "settled": True})


def _check_process(
    journal: Journal, tick: Tick, run: FlowRun | None, ours: Collection[int]
) -> None:
    """A running tick without a process has crashed, or was cancelled by hand."""
    assert tick.process is not None
    lost = tick.process == this_process() and tick.num not in ours
    if not lost and not is_gone(tick.process):
        return
    now = time.time()
    if run is not None and run.state in ("CANCELLING", "CANCELLED"):
        values = {"status": "cancelled", "reason": "cancelled by hand", "ended": now}
        journal.change(tick, values)
        return
    reason = f"the process of attempt {tick.attempt} is gone (killed, or the machine went down)"
    values = {"status": "crashed", "reason": reason, "ended": now, "settled": False}
    journal.change(tick, values)


def _just_taken(run: FlowRun) -> bool:
    return run.state in ("PENDING", "RUNNING") and time.time() - run.since < _TAKEN_SECONDS


def _check_waiting(
    journal: Journal, server: Server, schedule: CronSchedule, tick: Tick, run: FlowRun | None
) -> None:
    """A waiting tick needs a flow run that waits too."""
    if run is None:
        key = tick.id if tick.kind == "manual" else None
        made = server.lay_out(schedule, tick.due, key=key, reason=tick.reason)
        journal.change(tick, {"flow_run_id": made.id}, note="its flow run was made")
    elif run.state == "CANCELLED":
        journal.change(tick, {"status": "cancelled", "reason": "cancelled by hand"})
    elif run.state not in ("SCHEDULED",):
        at = max(time.time(), tick.not_before or 0.0)
        server.again(run.id, at, tick.reason, name="Scheduled")


def _after_failure(
    journal: Journal, server: Server, schedule: CronSchedule, tick: Tick, root: Path
) -> None:
    """Try again while the policy allows it, else notify, once."""
    allowed = schedule.retries + (CRASHES if tick.status == "crashed" else 0)
    refused = tick.not_before == float("inf")
    assert tick.flow_run_id is not None
    if tick.attempt <= allowed and not refused:
        at = time.time() + schedule.retry_seconds
        reason = f"{tick.reason}; again in {schedule.retry_seconds:g} s"
        server.again(tick.flow_run_id, at, reason, name="AwaitingRetry")
        values = {"status": "waiting", "reason": reason, "not_before": at, "settled": True}
        journal.change(tick, values)
        return
    server.close(tick.flow_run_id, tick)
    server.failed(tick, schedule.recipe)
    said = _tell(schedule, tick, root) if schedule.notify_command else "over; no retry is left"
    journal.change(tick, {"settled": True}, note=said)


def _tell(schedule: CronSchedule, tick: Tick, root: Path) -> str:
    """Give the local command the failure as JSON on its standard input."""
    assert schedule.notify_command is not None
    notice: Mapping[str, object] = failure(tick, schedule.recipe)
    try:
        done = subprocess.run(
            shlex.split(schedule.notify_command),
            input=json.dumps(notice),
            cwd=root,
            text=True,
            capture_output=True,
            check=False,
            timeout=_NOTIFY_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"over; the notice could not be given: {error}"
    return f"over; noticed with exit code {done.returncode}"
