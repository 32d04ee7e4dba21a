"""Decide what is due and what was missed, and note every instant of a schedule."""

import time
from typing import Any

from posttrain.operations.schedule.clock import instant
from posttrain.operations.schedule.notes import Declaration, Tick
from posttrain.operations.schedule.outcome import FINAL, SLACK_SECONDS, Desk
from posttrain.operations.schedule.policy import TickDecision, decide
from posttrain.operations.schedule.recipes import Schedule
from posttrain.operations.schedule.server import clocks
from posttrain.operations.schedule.times import ticks_between


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
    decisions = decide(config.missed, ticks, known=known, now=now, grace=config.grace_seconds)
    if not decisions:
        return
    runs = desk.server.runs_between(deployment, decisions[0].due - 1, decisions[-1].due + 1)
    skipped: list[TickDecision] = []
    for decision in decisions:
        run = runs.get(decision.due)
        if run is None or not (_was_taken(run) or run.state_type.value in FINAL):
            if not decision.runs:
                skipped.append(decision)
                continue
            what, said = "waiting", decision.reason
        elif _was_taken(run):
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
        desk.notes.add(schedule.name, first.due, "skipped", many + first.reason, until=last.due)
        skipped.clear()


def _was_taken(run: Any) -> bool:
    """Return whether some worker had it already: then nobody can say that it was missed."""
    return run.state_name in ("AwaitingConcurrencySlot", "AwaitingRetry", "Pending", "Running")


def admit(desk: Desk, declarations: dict[str, Declaration], run: Any) -> bool:
    """Return whether a flow run that is due may start now; its tick has a note then."""
    name = run.parameters.get("schedule")
    if name is None or run.deployment_id is None:
        return True  # Somebody else's deployment in this pool.
    if name not in declarations:
        desk.server.skip(str(run.id), f"no recipe declares the schedule '{name}'")
        return False
    each, due = declarations[name], run.expected_start_time.timestamp()
    schedule = Schedule.from_text(each.text)
    tick = desk.notes.tick(name, due)
    if tick is None and run.auto_scheduled and due not in desk.notes.known(name, due, [due]):
        if time.time() - due > schedule.config.grace_seconds and not _was_taken(run):
            reason = "it was laid out before the schedule was declared, changed or resumed"
            desk.notes.add(name, due, "skipped", reason)
            desk.server.skip(str(run.id), reason)
            return False
    elif tick is None and run.auto_scheduled:
        desk.server.skip(str(run.id), "it was missed, and skipped with others")
        return False
    if tick is None:
        kind = "scheduled" if run.auto_scheduled else "manual"
        said = "its time has come" if run.auto_scheduled else "asked for in Prefect"
        desk.notes.add(name, due, "waiting", said, kind=kind, flow_run_id=str(run.id))
        return True
    return _may_start(desk, tick, run)


def _may_start(desk: Desk, tick: Tick, run: Any) -> bool:
    holder = tick.data.get("flow_run_id")
    if tick.over:
        desk.server.close(str(run.id), tick)
    elif tick.status == "waiting" and holder is None:
        desk.notes.about(tick, "note", "its flow run is there", flow_run_id=str(run.id))
    elif holder != str(run.id):
        desk.server.skip(str(run.id), f"flow run {holder} is of the same instant")
    return (
        tick.status == "waiting"
        and holder in (None, str(run.id))
        and tick.data.get("not_before", 0.0) <= time.time() + 1.0
    )
