"""Slots on the GPUs of this machine: a stage that computes on CUDA has its devices for itself.

Whoever starts a stage takes the devices before the stage begins to count its time; the stage's own
process holds them too, so that one which outlives its executor for a moment is still alone. Locks
are of the machine, not of the project: two pipelines on one GPU run out of memory, or crawl.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import IO

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
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)
    serial, dot, rest = name.partition(".")
    place = folder / f"{_serials().get(serial, serial).replace('/', '-')}{dot}{rest}"
    # Another user's file can be locked as well as read.
    return os.fdopen(os.open(place, os.O_RDONLY | os.O_CREAT, 0o644))


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
