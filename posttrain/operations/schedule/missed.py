"""Decide what was missed, so that every instant of a schedule has a note."""

import json
import time
from typing import Any

from posttrain.operations.schedule.clock import instant
from posttrain.operations.schedule.notes import Declaration
from posttrain.operations.schedule.outcome import FINAL, SLACK_SECONDS, Desk
from posttrain.operations.schedule.policy import TickDecision, decide
from posttrain.operations.schedule.recipes import Schedule
from posttrain.operations.schedule.server import clocks
from posttrain.operations.schedule.times import ticks_between
from posttrain.pipeline.notices import send_notice


def settle(desk: Desk, each: Declaration, schedule: Schedule, deployment: Any) -> None:
    """Decide about every tick that is missed and has no note."""
    now, config = time.time(), schedule.config
    reach = config.grace_seconds + SLACK_SECONDS
    after = max(each.since, desk.notes.watermark(each.name) - reach)
    if after > now - config.grace_seconds:
        return
    used = clocks(deployment)
    ticks = sorted({t for clock in used for t in ticks_between(clock, after, now)})
    known = desk.notes.known(each.name, after, ticks)
    missed = [tick for tick in ticks if tick not in known and tick < now - config.grace_seconds]
    if not missed:
        return
    runs = desk.server.runs_between(deployment, missed[0] - 1, missed[-1] + 1)
    # Apart, as a long outage has more runs than one answer holds.
    young = desk.server.runs_between(deployment, now - config.grace_seconds, now + 1)
    decisions = decide(
        config.missed, ticks, known=known, laid_out=set(young), now=now, grace=config.grace_seconds
    )
    skipped: list[TickDecision] = []
    for decision in decisions:
        run = runs.get(decision.due)
        if run is None or not (was_taken(run) or run.state_type.value in FINAL):
            if not decision.runs:
                skipped.append(decision)
                continue
            what, said = "waiting", decision.reason
        elif was_taken(run):
            what, said = "waiting", "it waits in Prefect"
        else:
            what, said = "skipped", f"Prefect has it as {run.state_name}; its note is lost"
        flow_run_id = str(run.id) if run is not None else None
        _skip(desk, schedule, skipped)
        desk.notes.add(each.name, decision.due, what, said, flow_run_id=flow_run_id)
    _skip(desk, schedule, skipped)


def _skip(desk: Desk, schedule: Schedule, skipped: list[TickDecision]) -> None:
    """Note as one what is skipped together: a month of minutes is one line."""
    if skipped:
        first, last = skipped[0], skipped[-1]
        until = instant(last.due, schedule.config.timezone)
        many = f"{len(skipped)} of them, to {until}: " if len(skipped) > 1 else ""
        reason = "; ".join([many + first.reason, *_told(desk, schedule, skipped)])
        desk.notes.add(schedule.name, first.due, "skipped", reason, until=last.due)
        skipped.clear()


def _told(desk: Desk, schedule: Schedule, skipped: list[TickDecision]) -> list[str]:
    """Tell of what was missed, as the schedule asks; say what came of it."""
    config = schedule.config
    if "missed" not in config.notify_on:
        return []
    notice = {
        "event": "missed",
        "schedule": schedule.name,
        "recipe": schedule.recipe,
        "due": instant(skipped[0].due, "UTC"),
        "until": instant(skipped[-1].due, "UTC"),
        "missed": len(skipped),
        "reason": skipped[0].reason,
    }
    return send_notice(
        json.dumps(notice), url=config.notify_url, command=config.notify_command, root=desk.root
    )


def was_taken(run: Any) -> bool:
    """Return whether some worker had it already: then nobody can say that it was missed."""
    return run.state_name in ("AwaitingConcurrencySlot", "AwaitingRetry", "Pending", "Running")
