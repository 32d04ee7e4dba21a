"""Slots on the GPUs of this machine: a stage that computes on CUDA has its devices for itself.

Whoever starts a stage takes the devices before the stage begins to count its time; the stage's own
process holds them too, so that one which outlives its executor for a moment is still alone. Locks
are of the machine, not of the project: two pipelines on one GPU run out of memory, or crawl.
"""

import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import IO

from posttrain.stage.errors import UserError

ENVIRONMENT = "POSTTRAIN_GPU_LOCKS"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_POLL_SECONDS = 0.2


def devices() -> tuple[str, ...]:
    """Names of the devices that this process may use, as CUDA_VISIBLE_DEVICES has them."""
    named = os.environ.get(_VISIBLE)
    if named is not None:
        return tuple(filter(None, (name.strip() for name in named.split(","))))
    return tuple(_serials())


@contextmanager
def held(count: int, *, give_up: Callable[[], bool]) -> Iterator[tuple[str, ...]]:
    """Wait for `count` devices and keep them; none where there are fewer, or after `give_up`."""
    with ExitStack() as stack:
        names = devices()
        while count and len(names) >= count and not give_up():
            # All or none: two stages that each held half of what both want would wait for ever.
            taken = {name: lock for name in names if (lock := _locked(name)) is not None}
            chosen = list(taken)[:count] if len(taken) >= count else []
            for name, lock in taken.items():
                if name in chosen:
                    stack.enter_context(lock)
                else:
                    lock.close()
            if chosen:
                yield tuple(chosen)
                return
            time.sleep(_POLL_SECONDS)
        yield ()


@contextmanager
def used(names: Sequence[str]) -> Iterator[None]:
    """In the stage's process: see these devices only, once no other process works on them."""
    with ExitStack() as stack:
        for name in sorted(names):
            lock = stack.enter_context(_file(f"{name}.used"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        if names:
            os.environ[_VISIBLE] = ",".join(names)
        yield


def _locked(name: str) -> IO[str] | None:
    lock = _file(name)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _file(name: str) -> IO[str]:
    """A lock of the machine; every user may take it."""
    folder = Path(os.environ.get(ENVIRONMENT) or Path(tempfile.gettempdir()) / "posttrain-gpus")
    serial, dot, rest = name.partition(".")
    place = folder / f"{_serials().get(serial, serial).replace('/', '-')}{dot}{rest}"
    # Others may have put something else there: a link is not followed, a pipe not waited for.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        _require_safe(folder)
        try:
            # Another user's file can be locked as well as read, but not opened to be created.
            handle = os.open(place, flags)
        except FileNotFoundError:
            handle = os.open(place, flags | os.O_CREAT, 0o644)
    except OSError as error:
        raise _refusal(place, error.strerror or str(error)) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _refusal(place, "it is no plain file")
    return os.fdopen(handle)


def _require_safe(folder: Path) -> None:
    """Make the folder, or refuse one in which another user could exchange our locks."""
    try:
        folder.mkdir(parents=True)
        folder.chmod(0o1777)
    except FileExistsError:
        pass
    found = folder.lstat()
    ours = found.st_uid in (0, os.getuid())
    if not stat.S_ISDIR(found.st_mode):
        raise _refusal(folder, "it is no folder")
    if not ours or (found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX):
        raise _refusal(folder, "another user could exchange what lies in it")


def _refusal(place: Path, reason: str) -> UserError:
    return UserError(
        f"the locks of this machine's GPUs cannot be kept at {place}: {reason}; remove it, or set "
        f"{ENVIRONMENT} to a folder of your own"
    )


@cache
def _serials() -> dict[str, str]:
    """The serial name of each device by its number: one device is not to have two locks."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    query = [program, "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = (line.partition(",") for line in told.stdout.splitlines())
    return {number.strip(): serial.strip() for number, _, serial in lines}
