"""Start the services of a plan, watch them, start again what ended, take all down at the end."""

import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.operations.services import process
from posttrain.operations.services.plan import FOLDER, NAMES, ServicePlan
from posttrain.operations.services.process import Service
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from subprocess import Popen

SUPERVISOR = "supervisor"
_POLL_SECONDS = 0.5
_HEALTH_SECONDS = 5.0
_STALE_SECONDS = 180.0
_RESTART_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0)
# A service that ran this long has come up: an end after that counts from one again.
_STABLE_SECONDS = 30.0


def healthy(service: Service, *, since: float) -> bool:
    """Return whether the service answers, or has touched its file after `since`."""
    if not service.health.startswith("http"):
        beat = Path(service.health)
        return beat.exists() and beat.stat().st_mtime >= max(since, time.time() - _STALE_SECONDS)
    try:
        with urllib.request.urlopen(service.health, timeout=_HEALTH_SECONDS) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


class Supervisor:
    """Holds the services of one plan; `stop` may come from a signal."""

    def __init__(self, plan: ServicePlan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self._stopping = threading.Event()
        self._processes: dict[str, Popen[bytes]] = {}
        self._begun: dict[str, float] = {}
        self._restarts: dict[str, int] = {}

    def stop(self) -> None:
        """End everything as soon as possible."""
        self._stopping.set()

    def run(self) -> None:
        """Bring everything up, watch it until `stop`, take it down again."""
        folder = self._plan.folder
        if (other := process.alive(folder, SUPERVISOR)) is not None:
            raise UserError(f"the services are up already (process {other}); see posttrain down")
        take_down(self._plan.root)
        self._plan.require_free_ports()
        process.remember(folder, SUPERVISOR, os.getpid())
        self._plan.save()
        try:
            # The servers come up side by side; the worker needs them.
            *servers, worker = self._plan.services()
            for wave in (servers, [worker]):
                for service in wave:
                    self._start(service)
                for service in wave:
                    self._await(service)
            if not self._stopping.is_set():
                self._say("up: all services answer")
            while not self._stopping.wait(_POLL_SECONDS):
                for service in self._plan.services():
                    self._keep(service)
        finally:
            take_down(self._plan.root, supervisor=False)
            (folder / f"{SUPERVISOR}.pid").unlink(missing_ok=True)

    def _start(self, service: Service) -> None:
        if self._stopping.is_set():
            return
        self._begun[service.name] = time.time()
        self._processes[service.name] = process.start(service, self._plan.folder, self._plan.root)

    def _await(self, service: Service) -> None:
        begun = self._begun.get(service.name, time.time())
        while not self._stopping.is_set():
            if healthy(service, since=begun):
                self._say(f"{service.name}: up after {time.time() - begun:.1f} s")
                return
            code = self._processes[service.name].poll()
            if code is not None or time.time() - begun > service.ready_seconds:
                log = self._plan.folder / f"{service.name}.log"
                how = "did not answer in time" if code is None else f"ended with exit code {code}"
                raise UserError(f"{service.name} {how}; its log says why: {log}")
            self._stopping.wait(_POLL_SECONDS / 2)

    def _keep(self, service: Service) -> None:
        """Start a service that ended again, later each time."""
        code = self._processes[service.name].poll()
        if code is None:
            return
        ran = time.time() - self._begun[service.name]
        count = 0 if ran > _STABLE_SECONDS else self._restarts.get(service.name, 0)
        pause = _RESTART_SECONDS[min(count, len(_RESTART_SECONDS) - 1)]
        self._restarts[service.name] = count + 1
        self._say(f"{service.name}: ended with exit code {code}; again in {pause:g} s")
        # It is gone, and its port must be free: so must be what it started.
        process.sweep(self._processes[service.name].pid)
        if not self._stopping.wait(pause):
            self._start(service)


def take_down(root: Path, *, supervisor: bool = True) -> list[str]:
    """End whatever of the services lives, the worker first; names what was there."""
    folder = root / FOLDER
    ended = []
    if supervisor and (pid := process.alive(folder, SUPERVISOR)) is not None and pid != os.getpid():
        ended += [SUPERVISOR] if process.end(folder, SUPERVISOR, grace=60.0, group=False) else []
    *servers, worker = NAMES
    # The worker first: its last words are for the servers, which may then end side by side.
    with ThreadPoolExecutor() as pool:
        for names in ([worker], servers):
            there = list(pool.map(lambda name: process.end(folder, name, grace=30.0), names))
            ended += [name for name, was in zip(names, there, strict=True) if was]
    return ended
