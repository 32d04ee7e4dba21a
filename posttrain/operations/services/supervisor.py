"""Start the services of a plan, watch them, start again what ended, take all down at the end."""

import contextlib
import fcntl
import os
import re
import shutil
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.operations.services import process
from posttrain.operations.services.plan import FOLDER, NAMES, ServicePlan
from posttrain.operations.services.process import Service
from posttrain.stage.errors import UserError, masked

if TYPE_CHECKING:
    from subprocess import Popen

SUPERVISOR = "supervisor"
# What the supervisor says once it knows of each service whether it came up.
UP, UP_WITHOUT = "up: all services answer", "up without"
_POLL_SECONDS = 0.5
_ASK_SECONDS = 10.0
_ANSWER_SECONDS = 5.0
_RESTART_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
# A service that ran this long has come up: an end after that counts from one again.
_STABLE_SECONDS = 30.0
_GRACE_SECONDS = 30.0
# Prefect's and MLflow's databases and their journals, before anything is in them.
_FREE_BYTES = 64 << 20
_TAIL_BYTES, _WORDS = 4096, 200
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b.*: ")


class Health:
    """Asks a service how it is: a URL answers 200, or a file was touched since it was last asked.

    No clock is read, which may be set while a service runs.
    """

    def __init__(self, service: Service) -> None:
        self._at = service.health
        self._touched = self._sign()

    def answers(self) -> bool:
        """Return whether there was an answer, or a sign since the last call."""
        if not self._at.startswith("http"):
            before, self._touched = self._touched, self._sign()
            return self._touched not in (None, before)
        try:
            with urllib.request.urlopen(self._at, timeout=_ANSWER_SECONDS) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _sign(self) -> int | None:
        with contextlib.suppress(OSError):
            return Path(self._at).stat().st_mtime_ns
        return None


class Supervisor:
    """Holds the services of one plan, a thread each; `stop` may come from a signal."""

    def __init__(self, plan: ServicePlan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        # Set once a service is up, or has failed to come up for the first time.
        self._known = {service.name: threading.Event() for service in plan.services()}
        self._up = {name: threading.Event() for name in self._known}
        self._troubles: dict[str, str] = {}

    def stop(self) -> None:
        """End everything as soon as possible."""
        self._stopping.set()
        for event in (*self._up.values(), *self._known.values()):
            event.set()

    def run(self) -> None:
        """Bring everything up, watch it until `stop`, take it down again."""
        folder = self._plan.folder
        with alone(folder):
            take_down(self._plan.root, supervisor=False)
            self._plan.require_free_ports()
            process.remember(folder, SUPERVISOR, os.getpid())
            self._plan.save()
            try:
                for service in self._plan.services():
                    threading.Thread(target=self._keep, args=[service], daemon=True).start()
                self._announce()
                self._stopping.wait()
            finally:
                self._stopping.set()
                with self._starting:
                    take_down(self._plan.root, supervisor=False)
                (folder / f"{SUPERVISOR}.pid").unlink(missing_ok=True)

    def _announce(self) -> None:
        for event in self._known.values():
            event.wait()
        lacking = [f"{name}: {trouble}" for name, trouble in self._troubles.items()]
        if not self._stopping.is_set():
            self._say(f"{UP_WITHOUT} {'; '.join(lacking)}" if lacking else UP)

    def _keep(self, service: Service) -> None:
        """Start a service again and again, later each time that it does not come up."""
        if service.after is not None:
            self._known[service.after].wait()
            if not self._up[service.after].is_set():
                self._tell(service.name, f"waits for {service.after}")
            self._up[service.after].wait()
        failures = 0
        while not self._stopping.is_set():
            begun = time.monotonic()
            if (trouble := _damage(service)) is None:
                with self._starting:
                    if self._stopping.is_set():
                        return
                    health = Health(service)
                    started = process.start(service, self._plan.folder, self._plan.root)
                trouble = self._watch(service, started, health)
            if self._stopping.is_set():
                return
            if time.monotonic() - begun > _STABLE_SECONDS and self._up[service.name].is_set():
                failures = 0
            pause = _RESTART_SECONDS[min(failures, len(_RESTART_SECONDS) - 1)]
            failures += 1
            log = self._plan.folder / f"{service.name}.log"
            self._tell(service.name, f"{trouble}; it is started again; log: {log}")
            process.end(self._plan.folder, service.name, grace=_ANSWER_SECONDS)
            self._stopping.wait(pause)

    def _watch(self, service: Service, started: "Popen[bytes]", health: Health) -> str:
        """Wait until a service has ended or does not answer any more; returns what happened."""
        begun = heard = asked = time.monotonic()
        log = self._plan.folder / f"{service.name}.log"
        up = False
        while not self._stopping.wait(_POLL_SECONDS):
            if (code := started.poll()) is not None:
                # It is gone, and its port must be free: so must be what it started.
                process.sweep(started.pid)
                return f"ended with exit code {code}" + _last_words(log)
            now = time.monotonic()
            if up and now - asked < _ASK_SECONDS:
                continue
            asked = now
            if health.answers():
                heard = time.monotonic()
                if not up:
                    up = True
                    self._say(f"{service.name}: up after {heard - begun:.1f} s")
                    self._troubles.pop(service.name, None)
                    self._up[service.name].set()
                    self._known[service.name].set()
            elif now - heard > (service.hung_seconds if up else service.ready_seconds):
                return f"did not answer for {now - heard:.0f} s" + _last_words(log)
        return "was stopped"

    def _tell(self, name: str, trouble: str) -> None:
        """Say what keeps a service down, once for as long as it is the same."""
        if self._troubles.get(name) != trouble:
            self._say(f"{name}: {trouble}")
        self._troubles[name] = trouble
        self._known[name].set()


def _last_words(log: Path) -> str:
    """The last error in a service's log, which mostly says why it ended."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines()]
    told = next((line for line in reversed(lines) if _ERROR.match(line)), "")
    return f" ({masked(told[:_WORDS])})" if told else ""


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder of the services; refused while another supervisor holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = (folder / f"{SUPERVISOR}.lock").open("w")
    except OSError as error:
        raise UserError(f"cannot write in {folder}: {error.strerror}") from None
    if (free := shutil.disk_usage(folder).free) < _FREE_BYTES:
        raise UserError(
            f"no space left on the disk of {folder} ({free >> 20} MB): the servers' databases need "
            f"{_FREE_BYTES >> 20} MB; free some, for one with posttrain gc"
        )
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            where = process.elsewhere(folder, SUPERVISOR)
            pid = process.alive(folder, SUPERVISOR)
            who = f"on {where}" if where else f"(process {pid})" if pid else "(they come up)"
            raise UserError(f"the services are up already {who}; see posttrain down") from None
        yield


def _damage(service: Service) -> str | None:
    """What keeps SQLite from opening a database; a server would hide it in pages of traceback."""
    if service.database is None or not service.database.is_file():
        return None
    try:
        with contextlib.closing(
            sqlite3.connect(service.database, timeout=_ANSWER_SECONDS)
        ) as found:
            found.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        return f"its database {service.database} cannot be used ({error})"
    return None


def take_down(root: Path, *, supervisor: bool = True) -> list[str]:
    """End whatever of the services lives here, the worker first; names what was there."""
    folder = root / FOLDER
    ended = []
    if supervisor and process.end(folder, SUPERVISOR, grace=2 * _GRACE_SECONDS, group=False):
        ended.append(SUPERVISOR)
    *servers, worker = NAMES
    # The worker first: its last words are for the servers, which may then end side by side.
    with ThreadPoolExecutor() as pool:
        for names in ([worker], servers):
            there = list(
                pool.map(lambda name: process.end(folder, name, grace=_GRACE_SECONDS), names)
            )
            ended += [name for name, was in zip(names, there, strict=True) if was]
    return ended
