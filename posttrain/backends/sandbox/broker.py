"""The process that runs sandboxes for a stage: it takes programs and answers how they ended.

A stage is held by Landlock, which forbids mounts to it and to all that it starts, so it cannot
start a sandbox. It has an inherited socket instead, its door: who wants something sends a socket
of its own through it, and talks over that. The broker ends when nobody holds the door any more.
"""

import ctypes
import os
import platform
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from importlib.metadata import distributions
from typing import Any

from posttrain.backends.sandbox import keeper
from posttrain.backends.sandbox.launch import bubblewrap, search_path
from posttrain.backends.sandbox.pool import SandboxPool
from posttrain.backends.sandbox.program import Program, ProgramLimits
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import sha256_of

_PR_SET_PDEATHSIG = 1


def main(door: socket.socket, parent: int) -> None:
    """Serve until nobody holds the door.

    Args:
        door: Its other end is the stage's.
        parent: The process that started this one, with which it ends.

    """
    # Ctrl-C reaches every process of the terminal; who started this one decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    pool = SandboxPool()
    while True:
        asked, descriptors, _, _ = socket.recv_fds(door, 1, 1)
        if not asked:
            break
        for each in descriptors:
            link = socket.socket(fileno=each)
            threading.Thread(target=_serve, args=(link, pool), daemon=True).start()
    # Sandboxes end with this process; programs that still run have nobody who waits for them.
    os._exit(0)


def _serve(link: socket.socket, pool: SandboxPool) -> None:
    with link, suppress(OSError):  # whoever asked may be gone
        request = keeper.receive(link)
        if request is not None:
            header, blobs = request
            try:
                answer, outputs = _answer(header, blobs, pool)
            except (UserError, OSError, ValueError, TypeError, LookupError) as error:
                answer, outputs = {"refused": str(error) or type(error).__name__}, []
            keeper.send(link, answer, outputs)


def _answer(
    header: dict[str, Any], blobs: list[bytes], pool: SandboxPool
) -> tuple[dict[str, Any], list[bytes]]:
    if "versions" in header:
        return {"versions": _versions()}, []
    texts = iter(blobs)
    programs = []
    for told in header["programs"]:
        files = {str(name): next(texts) for name in told["files"]}
        limits = ProgramLimits(**told["limits"])
        programs.append(Program(tuple(map(str, told["command"])), files, next(texts), limits))
    ends = pool.run_all(programs)
    outputs = [stream for end in ends for stream in (end.stdout, end.stderr)]
    return {"ends": [end.told() for end in ends]}, outputs


@cache
def _versions() -> str:
    """Name the programs that decide what a sandboxed program does, with their versions."""
    found = [_first_line(bubblewrap(), "--version"), f"Python {platform.python_version()}"]
    found += [f"SQLite {sqlite3.sqlite_version}", _packages()]
    iverilog = shutil.which("iverilog", path=search_path())
    verilog = _first_line(iverilog, "-V").partition(" (")[0] if iverilog else ""
    return ", ".join([*found, *([verilog] if verilog else [])])


def _packages() -> str:
    """All that a program can import, as one: what an answer imports is known to nobody before."""
    found = sorted({f"{each.name}=={each.version}" for each in distributions()})
    return f"{len(found)} packages ({sha256_of(' '.join(found))[:12]})"


def _first_line(*command: str) -> str:
    with suppress(OSError):
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        return told.stdout.partition("\n")[0].strip()
    return ""


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
