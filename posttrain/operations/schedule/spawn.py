"""The process of one run: where it works, what it sees of its project, what it is to do."""

import os
from pathlib import Path

from posttrain.operations.schedule import heartbeat
from posttrain.operations.schedule.journal import ENVIRONMENT, Journal, Tick
from posttrain.operations.schedule.worktree import Checkout, link_inputs, prepare, shared

TICK = "POSTTRAIN_TICK"


def workspace(root: Path, journal: Journal, tick: Tick) -> Checkout:
    """The worktree of a tick's schedule at the project's commit; what it lacks is noted."""
    place = prepare(root, tick.schedule)
    link_inputs(root, place.root, journal.schedule(tick.schedule).recipe)
    if place.left_out:
        journal.note(tick, f"uncommitted edits are left out: {', '.join(place.left_out)}")
    return place


def environment(root: Path, journal: Journal, tick: Tick, project: Path) -> dict[str, str]:
    """What the process is started with: the project's state, and the worktree's own code."""
    code = filter(None, [str(project), os.environ.get("PYTHONPATH", "")])
    return {
        # A server that restarts during a run is waited for, about two minutes.
        "PREFECT_CLIENT_MAX_RETRIES": "6",
        # What it says while its own database is away.
        "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
        **os.environ,
        **shared(root),
        ENVIRONMENT: journal.url,
        TICK: str(tick.num),
        heartbeat.ENVIRONMENT: str(heartbeat.heartbeat_file(root, tick)),
        "PYTHONPATH": os.pathsep.join(code),
    }
