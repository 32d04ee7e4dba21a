"""A server's process: started in a session of its own, remembered by file, ended for certain.

The file holds host, process id and birth, so that a number which another process got since, or
which another machine wrote into a folder that both see, is never signalled.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from posttrain.pipeline.execution import die_with_parent
from posttrain.provenance.ledger.processes import is_gone, is_ours, process_named

_POLL_SECONDS = 0.1
# A program of its own, as Python code between fork and exec is not safe beside threads.
_DIE_WITH_PARENT = Path(die_with_parent.__file__)


@dataclass(frozen=True)
class Service:
    """What to start, with the variables it needs and a place that answers once it is up."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    """An empty value takes a variable of the supervisor's away."""
    health: str
    """A URL that answers 200, or a file that is touched."""
    after: str | None = None
    """Name of the service that has to be up before."""
    ready_seconds: float = 120.0
    """Seconds that it may take to come up."""
    hung_seconds: float = 60.0
    """Seconds without an answer after which it is started again."""
    database: Path | None = None
    """SQLite file that it opens."""


def start(service: Service, folder: Path, root: Path) -> subprocess.Popen[bytes]:
    """Start a service; its output is appended to its log, its identity is in its file."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **service.environment}
    with (folder / f"{service.name}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", str(_DIE_WITH_PARENT), str(os.getpid()), *service.command],
            cwd=root,
            env={name: value for name, value in environment.items() if value},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        remember(folder, service.name, process.pid)
    except OSError:
        sweep(process.pid)
        raise
    return process


def remember(folder: Path, name: str, pid: int) -> None:
    """Write who is `name` now."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{name}.pid"
    partial.write_text(process_named(pid), encoding="utf-8")
    partial.replace(folder / f"{name}.pid")


def alive(folder: Path, name: str) -> int | None:
    """Process id of a service that lives on this machine, by its file."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = (folder / f"{name}.pid").read_text(encoding="utf-8")
        return int(text.split(" ")[1]) if is_ours(text) else None
    return None


def elsewhere(folder: Path, name: str) -> str | None:
    """`HOST (process N)` of a service that another machine has, or had, by its file."""
    with contextlib.suppress(OSError, ValueError):
        text = (folder / f"{name}.pid").read_text(encoding="utf-8")
        if not is_ours(text) and not is_gone(text):
            host, pid, _ = text.split(" ")
            return f"{host} (process {pid})"
    return None


def end(folder: Path, name: str, *, grace: float, group: bool = True) -> bool:
    """End a service with all that it started; False if it was not there. Waits until it is gone.

    Without `group` only the process itself: it shares its group with whoever started it.
    """
    pid = alive(folder, name)
    if pid is not None:
        signal_it = os.killpg if group else os.kill
        with contextlib.suppress(ProcessLookupError, PermissionError):
            signal_it(pid, signal.SIGTERM)
            deadline = time.monotonic() + grace
            while alive(folder, name) is not None and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            # What a service started may outlive it; the group ends with it in any case.
            signal_it(pid, signal.SIGKILL)
    if elsewhere(folder, name) is None:
        (folder / f"{name}.pid").unlink(missing_ok=True)
    return pid is not None


def sweep(pid: int) -> None:
    """End what a service that is gone by itself has left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
