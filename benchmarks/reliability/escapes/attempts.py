"""Let programs try to escape, with things around that they must not reach."""

import ctypes
import os
import platform
import socket
import subprocess
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.reliability.escapes.case import Escape
from posttrain.backends.sandbox.program import Program, ProgramEnd, ProgramLimits
from posttrain.backends.sandbox.seccomp import REFUSED

_GRACE_SECONDS = 5.0
_PR_SET_CHILD_SUBREAPER = 36
_CONTENT = "what the user wrote"


@dataclass
class Surroundings:
    """What lies around a sandbox, on this machine: files, servers, processes, secrets."""

    facts: Mapping[str, object]
    canary: Path
    process: subprocess.Popen[bytes]
    listeners: tuple[socket.socket, ...]

    def reached(self) -> str:
        """Say what of it was reached; empty where nothing was."""
        if self.canary.read_text() != _CONTENT:
            return "the file of the user was changed"
        if self.process.poll() is not None:
            return "a process of the user has ended"
        for each in self.listeners:
            with suppress(BlockingIOError):
                (each.accept if each.type == socket.SOCK_STREAM else lambda: each.recv(10))()  # noqa: B023
                return f"a server of the user was reached: {each}"
        if left := [each for each in psutil.process_iter(["cmdline"]) if self._is_left(each)]:
            return f"processes are left: {left}"
        return ""

    def _is_left(self, process: psutil.Process) -> bool:
        return str(self.facts["long"]) in (process.info["cmdline"] or ())


@contextmanager
def surroundings() -> Iterator[Surroundings]:
    """Put things around that a program must not reach."""
    with ExitStack() as kept:
        folder = Path(kept.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        canary = folder / f"canary-{uuid.uuid4().hex}"
        canary.write_text(_CONTENT)
        secret, abstract = f"secret-{uuid.uuid4().hex}", uuid.uuid4().hex
        sleeper, long = str(10**6 + os.getpid()), str(2 * 10**6 + os.getpid())
        tcp, udp = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
        files = [socket.socket(socket.AF_UNIX) for _ in range(2)]
        places = (("127.0.0.1", 0), ("127.0.0.1", 0), f"\0{abstract}", str(folder / "socket"))
        listeners = (tcp, udp, *files)
        for each, place in zip(listeners, places, strict=True):
            kept.enter_context(each)
            each.bind(place)
            each.setblocking(False)
            if each is not udp:
                each.listen()
        process = subprocess.Popen(["sleep", sleeper])
        kept.callback(process.wait)
        kept.callback(process.kill)
        os.environ["SANDBOX_SECRET"] = secret
        kept.callback(os.environ.pop, "SANDBOX_SECRET")
        column = ("x86_64", "aarch64").index(platform.machine())
        facts = {
            **{f"nr_{name}": numbers[column] for name, numbers in REFUSED.items()},
            "nr_clone": (56, 220)[column],
            "canary": canary,
            "folder": folder,
            "project": Path(__file__).parents[3],
            "secret": secret,
            "process": process.pid,
            "sleeper": sleeper,
            "long": long,
            "tcp": tcp.getsockname()[1],
            "udp": udp.getsockname()[1],
            "abstract": abstract,
            "unix": folder / "socket",
            "host": socket.gethostname(),
        }
        yield Surroundings(facts, canary, process, listeners)


def program_of(escape: Escape, around: Surroundings) -> Program:
    """Make the program of an attempt."""
    limits = ProgramLimits(seconds=escape.seconds, cpu_seconds=escape.seconds)
    return Program.of(escape.language, escape.told(around.facts), limits=limits)


def achieved(escape: Escape, end: ProgramEnd, around: Surroundings) -> str:
    """Say what an attempt achieved that it must not; empty where it was contained."""
    if b"ESCAPED" in end.stdout:
        return end.output.strip()[:200]
    if end.how == "lost":
        return "it ended its sandbox"
    if escape.ends and end.how not in escape.ends:
        return f"it ended by {end.how} {end.code}: {end.errors[-200:]}"
    if end.seconds > escape.seconds + _GRACE_SECONDS:
        return f"it took {end.seconds:.1f} s"
    return around.reached()


def outside(escape: Escape, around: Surroundings) -> bool:
    """Return whether a harmless attempt succeeds without a sandbox, as it must to be a test."""
    with tempfile.TemporaryDirectory() as folder:
        name, (command, *_) = "main.py", program_of(escape, around).command
        Path(folder, name).write_text(escape.told(around.facts))
        done = subprocess.run(
            [command, name], cwd=folder, capture_output=True, check=False, timeout=30
        )
    for each in around.listeners:
        with suppress(BlockingIOError):
            if each.type == socket.SOCK_STREAM:
                each.accept()[0].close()
    return b"ESCAPED" in done.stdout


@dataclass(frozen=True)
class Held:
    """What this process and those below it have open: after many runs as many as before."""

    processes: int
    files: int
    mounts: int
    namespaces: int
    temporary: int


def adopt_orphans() -> None:
    """Make what outlives its parent a child of this process, so that `held_now` counts it."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl refused PR_SET_CHILD_SUBREAPER")


def held_now(*, settle: float = 5.0) -> Held:
    """Count processes below this one, its open files, mounts, namespaces and temporary files.

    Namespaces are those of this process and of all below it; after `adopt_orphans` nothing that it
    started is elsewhere.

    Args:
        settle: Seconds that what is ending is given to end.

    """
    end = time.monotonic() + settle
    while psutil.Process().children() and time.monotonic() < end:
        _bury()
        time.sleep(0.05)
    namespaces = set()
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(OSError):
            namespaces |= {
                str(each.readlink()) for each in Path(f"/proc/{process.pid}/ns").iterdir()
            }
    return Held(
        processes=len(psutil.Process().children(recursive=True)),
        files=len([*Path("/proc/self/fd").iterdir()]),
        mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
        namespaces=len(namespaces),
        temporary=len([*Path(tempfile.gettempdir()).iterdir()]),
    )


def commands_below() -> dict[str, int]:
    """Count the processes below this one by what they are: their program, and its kind of one."""
    found: Counter[str] = Counter()
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            name, line = process.name(), process.cmdline()
            kinds = (each[7:] for each in line if each.startswith("--type="))
            found[" ".join((name, *kinds))] += 1
    return dict(sorted(found.items()))


def _bury() -> None:
    """Take note of adopted processes that have ended, as init does of those of others."""
    for child in psutil.Process().children():
        with suppress(psutil.Error, ChildProcessError):
            if child.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(child.pid, os.WNOHANG)
