"""Decide if a tick may run now: asked by the worker before it starts a process for it.

Also by the flow itself, where another worker than ours started it.
"""

import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from posttrain.operations.schedule.journal import Journal, Tick
from posttrain.operations.schedule.moved import fingerprint, moved
from posttrain.operations.schedule.policy import decide
from posttrain.operations.schedule.schedule import CronSchedule
from posttrain.operations.schedule.times import is_tick, ticks_between
from posttrain.operations.schedule.worktree import head
from posttrain.provenance.ledger.processes import is_gone, this_process
from posttrain.stage.errors import UserError


@dataclass(frozen=True)
class Admission:
    """`run`: the caller holds the tick. `wait`: ask again later. `over`: nothing to run."""

    answer: Literal["run", "wait", "over"]
    tick: Tick


def settle_missed(journal: Journal, schedule: CronSchedule, now: float) -> list[Tick]:
    """Give every missed tick its row: waiting if the policy makes it good, skipped if not."""
    last = journal.last_scheduled(schedule.name)
    after = max(schedule.since, last or 0.0) - 1e-3
    ticks = ticks_between(schedule, after, now)
    known = journal.known(schedule.name, schedule.since)
    rows = []
    for decision in decide(schedule, ticks, known=known, now=now):
        status = "waiting" if decision.runs else "skipped"
        row = journal.add(
            schedule.name, decision.due, kind="scheduled", status=status, reason=decision.reason
        )
        rows += [row] if row is not None else []
    return rows


def admit(
    journal: Journal,
    schedule: CronSchedule,
    due: float,
    *,
    flow_run_id: str,
    root: Path,
    room: bool = True,
) -> Admission:
    """Decide on the tick of one flow run; `run` makes this process its holder.

    Without `room` the tick only gets its row, so that waiting here does not make it a missed one.
    """
    now = time.time()
    settle_missed(journal, schedule, now)
    tick = journal.of_flow_run(flow_run_id) or _row(journal, schedule, due)
    if tick.flow_run_id not in (None, flow_run_id) or tick.status != "waiting":
        return Admission("over", tick)
    if tick.kind == "scheduled" and tick.attempt == 0 and (reason := _void(schedule, tick.due)):
        return _over(journal, tick, "skipped", reason)
    tick = journal.change(tick, {"flow_run_id": flow_run_id}) or tick
    if not room or (tick.not_before is not None and now < tick.not_before):
        return Admission("wait", tick)
    if other := _holder(journal, tick):
        return _behind(journal, schedule, tick, other)
    if tick.kind != "manual" and schedule.only_if_moved:
        reason = _unmoved(journal, schedule, root)
        if reason is not None:
            return _over(journal, tick, "unchanged", reason)
    return _claim(journal, tick)


def _row(journal: Journal, schedule: CronSchedule, due: float) -> Tick:
    added = journal.add(
        schedule.name, due, kind="scheduled", status="waiting", reason="its time has come"
    )
    found = added or journal.find(schedule.name, due)
    assert found is not None
    return found


def _void(schedule: CronSchedule, due: float) -> str | None:
    """Why a flow run that was laid out earlier has no ground any more."""
    if schedule.paused:
        return "the schedule is paused"
    if due < schedule.since or not is_tick(schedule, due):
        return "the schedule was changed or paused since this run was laid out"
    return None


def _holder(journal: Journal, tick: Tick) -> Tick | None:
    """Another tick of the schedule that a living process has."""
    for other in journal.running(tick.schedule):
        if other.num != tick.num and not (other.process and is_gone(other.process)):
            return other
    return None


def _behind(journal: Journal, schedule: CronSchedule, tick: Tick, other: Tick) -> Admission:
    if schedule.collision == "cancel-new":
        reason = f"the run of {clock(schedule, other.due)} still runs (--concurrency 1:cancel-new)"
        return _over(journal, tick, "skipped", reason)
    reason = f"queued behind the run of {clock(schedule, other.due)}"
    if tick.reason != reason:
        tick = journal.change(tick, {"status": "waiting", "reason": reason}) or tick
    return Admission("wait", tick)


def _over(journal: Journal, tick: Tick, status: str, reason: str) -> Admission:
    now = time.time()
    ended = {"status": status, "reason": reason, "started": now, "ended": now}
    return Admission("over", journal.change(tick, ended) or journal.tick(tick.num))


def _claim(journal: Journal, tick: Tick) -> Admission:
    values = {
        "status": "running",
        "attempt": tick.attempt + 1,
        "process": this_process(),
        "started": time.time(),
        "reason": tick.reason,
        "not_before": None,
    }
    claimed = journal.change(tick, values, note=f"attempt {tick.attempt + 1} starts")
    if claimed is None:
        return Admission("over", journal.tick(tick.num))
    return Admission("run", claimed)


def _unmoved(journal: Journal, schedule: CronSchedule, root: Path) -> str | None:
    """Why there is nothing to do; None if something moved, or it cannot be known."""
    last = journal.last_success(schedule.name)
    frozen = last.frozen_values() if last else {}
    if last is None or not frozen or frozen["overrides"] != list(schedule.overrides):
        return None
    if frozen["commit"] != head(root) or set(schedule.watch) - frozen["watched"].keys():
        return None
    try:
        now = fingerprint(root, list(frozen["watched"]))
    except UserError:
        return None
    if moved(frozen["watched"], now):
        return None
    num = len(now)
    return (
        f"no input moved since the run of {clock(schedule, last.due)}: "
        f"{num} watched, same commit (--only-if-moved)"
    )


def clock(schedule: CronSchedule, moment: float, *, seconds: bool = False) -> str:
    """An instant as the schedule's owner reads it."""
    form = "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(moment, ZoneInfo(schedule.timezone)).strftime(form)
