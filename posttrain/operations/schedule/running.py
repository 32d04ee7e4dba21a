"""The processes of runs on this machine: how one is signalled, and how all are ended."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from posttrain.operations.schedule.heartbeat import Watch
from posttrain.operations.schedule.journal import Journal, Tick
from posttrain.provenance.ledger.processes import is_gone, this_process

if TYPE_CHECKING:
    import subprocess

_STOP_SECONDS = 20.0
_POLL_SECONDS = 0.1

Children = Mapping[int, "subprocess.Popen[bytes]"]


def terminate(tick: Tick) -> None:
    """Ask the process of a tick to end, if it is one of this machine."""
    pid = _pid(tick)
    if pid is not None:
        _signal(pid, signal.SIGTERM)


def sweep(pid: int) -> None:
    """End what a run that is over has left behind, such as a process that preloads for stages."""
    _signal(pid, signal.SIGKILL)


def kill_hung(journal: Journal, watch: Watch) -> list[Tick]:
    """End the runs of this machine that send no heartbeat; they count as crashed."""
    here = [tick for tick in journal.live() if tick.status == "running" and _pid(tick) is not None]
    stopped = []
    for tick in watch.hung(here):
        reason = f"attempt {tick.attempt} gave no sign for {watch.limit:g} s and was stopped"
        values = {"status": "crashed", "reason": reason, "ended": time.time(), "settled": False}
        pid = _pid(tick)
        if (changed := journal.change(tick, values)) is not None:
            _signal(pid, signal.SIGKILL)
            stopped.append(changed)
    return stopped


def end_runs(journal: Journal, children: Children) -> list[Tick]:
    """End every run of this machine, also those that an earlier worker started.

    The journal still has them: they wait, with no attempt used up, for the next worker.
    """
    running = [tick for tick in journal.live() if tick.status == "running"]
    ours = [tick for tick in running if tick.num in children or _pid(tick) is not None]
    pids = {
        tick.num: children[tick.num].pid if tick.num in children else _pid(tick) for tick in ours
    }
    for pid in pids.values():
        _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < deadline and not all(_ended(tick, children) for tick in ours):
        time.sleep(_POLL_SECONDS)
    return [_put_back(journal, tick, pids[tick.num]) for tick in ours]


def _put_back(journal: Journal, tick: Tick, pid: int | None) -> Tick:
    # What a run started may outlive it; the group ends with it in any case.
    _signal(pid, signal.SIGKILL)
    now = journal.tick(tick.num)
    if now.status != "running":
        return now
    values = {
        "status": "waiting",
        "reason": f"attempt {now.attempt} was stopped with the worker; it goes on",
        "process": None,
        "attempt": now.attempt - 1,
    }
    return journal.change(now, values) or now


def _ended(tick: Tick, children: Children) -> bool:
    if tick.num in children:
        return children[tick.num].poll() is not None
    return _pid(tick) is None


def _pid(tick: Tick) -> int | None:
    """Process id of a tick's run here; None for another machine's, a dead one and ourselves."""
    if tick.process is None or tick.process == this_process() or is_gone(tick.process):
        return None
    host, pid, _ = tick.process.split(" ")
    return int(pid) if host == socket.gethostname() else None


def _signal(pid: int | None, number: int) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)
