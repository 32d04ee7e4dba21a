"""Decide at the start of a run: may it start, is there anything to do, and at which commit."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import Timeout

from posttrain.operations.schedule.clock import instant
from posttrain.operations.schedule.missed import was_taken
from posttrain.operations.schedule.moved import DoesNotAnswer, fingerprint, moved
from posttrain.operations.schedule.notes import ENVIRONMENT, Declaration, Tick
from posttrain.operations.schedule.outcome import Desk, run_lock, schedule_of, tick_of
from posttrain.operations.schedule.recipes import Schedule
from posttrain.operations.schedule.server import BEAT_SECONDS
from posttrain.operations.schedule.worktree import Checkout, link_inputs, prepare, shared
from posttrain.stage.errors import UserError, sentence

TICK = "POSTTRAIN_TICK"
_BUSY_SECONDS = 10.0


@dataclass(frozen=True)
class Begun:
    """A process to start for an attempt: where, with which log and which variables."""

    tick: Tick
    place: Path
    log: Path
    environment: Mapping[str, str]


def admit(desk: Desk, declarations: Mapping[str, Declaration], run: Any) -> bool:
    """Return whether a flow run that is due may start now; its tick has a note then."""
    name, due = run.parameters["schedule"], run.expected_start_time.timestamp()
    grace = Schedule.from_text(declarations[name].text).config.grace_seconds
    tick = desk.notes.tick(name, due)
    if tick is not None:
        return _may_start(desk, tick, run)
    if run.auto_scheduled and desk.notes.known(name, due, [due]):
        desk.server.skip(str(run.id), "it was missed, and skipped with others")
    elif run.auto_scheduled and time.time() - due > grace and not was_taken(run):
        reason = "it was laid out before the schedule was declared, changed or resumed"
        desk.notes.add(name, due, "skipped", reason)
        desk.server.skip(str(run.id), reason)
    else:
        kind = "scheduled" if run.auto_scheduled else "manual"
        said = "its time has come" if run.auto_scheduled else "asked for in Prefect"
        return desk.notes.add(name, due, "waiting", said, kind=kind, flow_run_id=str(run.id))
    return False


def _may_start(desk: Desk, tick: Tick, run: Any) -> bool:
    holder = tick.data.get("flow_run_id")
    if tick.over:
        desk.server.show(str(run.id), tick)
    elif tick.status == "waiting" and holder is None:
        desk.notes.about(tick, "note", "its flow run is there", flow_run_id=str(run.id))
    elif holder != str(run.id):
        desk.server.skip(str(run.id), f"flow run {holder} is of the same instant")
    return (
        tick.status == "waiting"
        and holder in (None, str(run.id))
        and tick.data.get("not_before", 0.0) <= time.time() + 1.0
    )


def begin(desk: Desk, run: Any) -> Begun | None:
    """Decide about a flow run that Prefect lets start; None where no process is to be started."""
    tick = tick_of(desk, run)
    schedule = schedule_of(desk, run)
    if tick is None or schedule is None or tick.status != "waiting":
        return None
    try:
        with run_lock(desk.root, schedule.name).acquire(timeout=0):
            checkout = prepare(desk.root, schedule.name)
            link_inputs(desk.root, checkout.root, schedule.recipe, schedule.config.watch)
            asks = tick.kind != "manual" and schedule.config.only_if_moved
            reason = _unmoved(desk, schedule, checkout) if asks else None
            if reason is None:
                return _process(desk, schedule, tick, run, checkout)
        desk.notes.about(tick, "unchanged", reason)
    except Timeout:
        reason = "the process of an attempt before still ends"
        desk.notes.about(tick, "waiting", reason, not_before=time.time() + _BUSY_SECONDS)
    except Exception as error:  # noqa: BLE001
        # What is refused stays refused until it is mended.
        refused = isinstance(error, UserError) and not isinstance(error, DoesNotAnswer)
        desk.notes.about(tick, "failed", sentence(error), refused=refused)
    return None


def _process(
    desk: Desk, schedule: Schedule, tick: Tick, run: Any, checkout: Checkout
) -> Begun:  # fmt: skip
    root = desk.root
    if checkout.left_out:
        said = f"uncommitted edits are left out: {', '.join(checkout.left_out)}"
        desk.notes.about(tick, "note", said)
    logs = root / ".posttrain" / "services" / "runs"
    logs.mkdir(parents=True, exist_ok=True)
    when = instant(tick.due, "UTC").replace(" ", "-").replace(":", "")
    log = logs / f"{schedule.name}-{when}.log"
    given = {
        "schedule": schedule.as_text(), "due": tick.due, "root": str(root), "log": str(log),
        "worker": os.getpid(), "flow_run_id": str(run.id),
    }  # fmt: skip
    code = filter(None, [str(checkout.root), os.environ.get("PYTHONPATH", "")])
    environment = {
        # A server that restarts during a run is waited for, about two minutes.
        "PREFECT_CLIENT_MAX_RETRIES": "6",
        # What it says while its own database is away.
        "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": str(BEAT_SECONDS),
        **shared(root),
        ENVIRONMENT: desk.notes.url,
        TICK: json.dumps(given),
        "PREFECT__FLOW_RUN_ID": str(run.id),
        "PYTHONPATH": os.pathsep.join(code),
    }
    return Begun(tick, checkout.root, log, environment)


def _unmoved(desk: Desk, schedule: Schedule, checkout: Checkout) -> str | None:
    """Why there is nothing to do; None if something moved since the last success.

    A run freezes what its worktree has, so the same place is asked: an edit that is not committed
    is not in the run either.
    """
    last = desk.notes.last_success(schedule.name)
    frozen = last.data.get("frozen") if last is not None else None
    config = schedule.config
    if last is None or not frozen or frozen["overrides"] != list(config.overrides):
        return None
    if frozen["commit"] != checkout.commit or set(config.watch) - frozen["watched"].keys():
        return None
    now = fingerprint(checkout.root, list(frozen["watched"]))
    if moved(frozen["watched"], now):
        return None
    when = instant(last.due, config.timezone)
    return f"no input moved since the run of {when}: {len(now)} watched, same commit"
