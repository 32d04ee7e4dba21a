"""Start the services of a plan, watch them, start again what ended, take all down at the end."""

import contextlib
import fcntl
import os
import re
import shutil
import sqlite3
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
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
# Of one that comes up: the others are not kept waiting, and it is asked again at once.
_FIRST_SECONDS = 2.0
_RESTART_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
# A service that ran this long has come up: an end after that counts from one again.
_STABLE_SECONDS = 30.0
_GRACE_SECONDS = 30.0
# Prefect's and MLflow's databases and their journals, before anything is in them.
_FREE_BYTES = 64 << 20
_TAIL_BYTES, _WORDS = 4096, 200
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b.*: ")


@dataclass
class _Watched:
    """A service as the supervisor knows it; times are of the monotonic clock."""

    service: Service
    process: "Popen[bytes] | None" = None
    up: bool = False
    trouble: str | None = None
    """What keeps it down, as it was said; empty once it is up."""
    touched: int | None = None
    due: float = 0.0
    """When it is to be started."""
    begun: float = 0.0
    asked: float = 0.0
    heard: float = 0.0
    failures: int = 0

    def answers(self) -> bool:
        """Return whether a URL answers, or a file was touched since this was asked last.

        No clock is read, which may be set while a service runs.
        """
        at = self.service.health
        if at.startswith("http"):
            patience = _ANSWER_SECONDS if self.up else _FIRST_SECONDS
            with contextlib.suppress(OSError, HTTPException):
                urllib.request.urlopen(at, timeout=patience).close()
                return True
            return False
        before, self.touched = self.touched, _sign(at)
        return self.touched not in (None, before)


class Supervisor:
    """Holds the services of one plan; `stop` may come from a signal."""

    def __init__(self, plan: ServicePlan, say: Callable[[str], None]) -> None:
        self._plan = plan
        self._say = say
        self._stopping = threading.Event()
        self._all = {service.name: _Watched(service) for service in plan.services()}

    def stop(self) -> None:
        """End everything as soon as possible."""
        self._stopping.set()

    def run(self) -> None:
        """Bring everything up, watch it until `stop`, take it down again."""
        folder = self._plan.folder
        with alone(folder):
            take_down(self._plan.root, supervisor=False)
            self._plan.require_free_ports()
            process.remember(folder, SUPERVISOR, os.getpid())
            self._plan.save()
            announced = False
            try:
                while not self._stopping.wait(_POLL_SECONDS):
                    # A full disk takes no line of ours, and is no reason to watch nothing.
                    for each in self._all.values():
                        with contextlib.suppress(OSError):
                            self._look_after(each)
                    with contextlib.suppress(OSError):
                        announced = announced or self._announce()
            finally:
                take_down(self._plan.root, supervisor=False)
                (folder / f"{SUPERVISOR}.pid").unlink(missing_ok=True)

    def _announce(self) -> bool:
        """Say that all is up, once it is known of each service whether it came up."""
        if any(each.trouble is None for each in self._all.values()):
            return False
        lacking = [f"{name}: {each.trouble}" for name, each in self._all.items() if each.trouble]
        self._say(f"{UP_WITHOUT} {'; '.join(lacking)}" if lacking else UP)
        return True

    def _look_after(self, each: _Watched) -> None:
        """Start a service that is due, and end one that is not well: it is due again, later."""
        first = self._all.get(each.service.after or "")
        if each.process is not None:
            trouble = self._trouble_of(each, each.process)
        elif time.monotonic() < each.due:
            return
        elif first is not None and not first.up:
            if first.trouble:
                self._tell(each, f"waits for {first.service.name}")
            return
        elif (trouble := _damage(each.service)) is None:
            each.touched = _sign(each.service.health)
            each.begun = each.heard = each.asked = time.monotonic()
            try:
                each.process = process.start(each.service, self._plan.folder, self._plan.root)
            except OSError as error:
                trouble = f"cannot be started: {error.strerror}"
        if trouble is None:
            return
        log = self._plan.folder / f"{each.service.name}.log"
        process.end(self._plan.folder, each.service.name, grace=_ANSWER_SECONDS)
        now = time.monotonic()
        each.failures = 0 if each.up and now - each.begun > _STABLE_SECONDS else each.failures
        each.due = now + _RESTART_SECONDS[min(each.failures, len(_RESTART_SECONDS) - 1)]
        each.failures += 1
        each.process, each.up = None, False
        self._tell(each, f"{trouble}; it is started again; log: {log}")

    def _trouble_of(self, each: _Watched, started: "Popen[bytes]") -> str | None:
        """Say that a service has ended or does not answer any more; None where it is well."""
        log = self._plan.folder / f"{each.service.name}.log"
        if (code := started.poll()) is not None:
            # It is gone, and its port must be free: so must be what it started.
            process.sweep(started.pid)
            return f"ended with exit code {code}" + _last_words(log)
        now = time.monotonic()
        if each.up and now - each.asked < _ASK_SECONDS:
            return None
        each.asked = now
        if each.answers():
            each.heard = time.monotonic()
            if not each.up:
                each.up, each.trouble = True, ""
                self._say(f"{each.service.name}: up after {each.heard - each.begun:.1f} s")
        elif now - each.heard > (
            each.service.hung_seconds if each.up else each.service.ready_seconds
        ):
            return f"did not answer for {now - each.heard:.0f} s" + _last_words(log)
        return None

    def _tell(self, each: _Watched, trouble: str) -> None:
        """Say what keeps a service down, once for as long as it is the same."""
        before, each.trouble = each.trouble, trouble
        if before != trouble:
            self._say(f"{each.service.name}: {trouble}")


def _sign(place: str) -> int | None:
    with contextlib.suppress(OSError):
        return Path(place).stat().st_mtime_ns
    return None


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
