"""The first process of a sandbox: waits for one program, runs it, says how it ended, and ends.

A bare interpreter runs this file, and nothing else is imported. As process 1 of its namespace it
cannot be killed from inside, and as it is not dumpable it cannot be traced or read; when it ends,
the kernel ends everything in the sandbox.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

USER = 1000
"""Who a program is, in the sandbox."""
FOLDER = "/tmp/work"  # noqa: S108 - of the sandbox
ENVIRONMENT = {
    "HOME": FOLDER,
    "TMPDIR": "/tmp",  # noqa: S108
    "USER": "sandbox",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""All that a program sees of an environment, beside the path of programs."""

_WRITABLE = ("/tmp", "/dev/shm")  # noqa: S108
_LOOK_SECONDS = 0.01
_CHUNK = 1 << 16
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_PAGE, _TICKS = resource.getpagesize(), os.sysconf("SC_CLK_TCK")
_MOST_FILES = (1 << 31) - 1
_HEADROOM = 8
"""Processes beyond the limit that can begin before the look that stops them all."""


def send(link: socket.socket, header: Mapping[str, Any], blobs: Sequence[bytes]) -> None:
    """Send a header and blobs.

    Args:
        link: A stream.
        header: What JSON can hold.
        blobs: Bytes, in an order that both sides know.

    """
    text = json.dumps({"header": header, "sizes": [len(blob) for blob in blobs]}).encode()
    link.sendall(struct.pack("=I", len(text)) + text + b"".join(blobs))


def receive(link: socket.socket) -> tuple[dict[str, Any], list[bytes]] | None:
    """Receive what `send` sent.

    Args:
        link: A stream.

    Returns:
        Header and blobs; None where the other side is gone.

    """
    size = _exactly(link, 4)
    text = _exactly(link, struct.unpack("=I", size)[0]) if size else None
    if not text:
        return None
    told = json.loads(text)
    blobs = [_exactly(link, each) for each in told["sizes"]]
    if None in blobs:
        return None
    return told["header"], [blob for blob in blobs if blob is not None]


def _exactly(link: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = link.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def main(control: int, path: str) -> None:
    """Wait for a program, and run it.

    Args:
        control: Descriptor of the socket over which it comes.
        path: Where programs are found.

    """
    link = socket.socket(fileno=control)
    # What bubblewrap was given, it may hand on.
    os.closerange(3, control)
    os.closerange(control + 1, _MOST_FILES)
    link.set_inheritable(False)
    libc = ctypes.CDLL(None)
    if os.getuid() != USER:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        # It was cleared with the user.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(_PR_SET_DUMPABLE, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.mkdir(FOLDER)  # noqa: PTH102 - pathlib takes as long to import as all else
    os.chdir(FOLDER)
    link.sendall(b"+")
    order = receive(link)
    if order is None:
        return
    header, blobs = order
    watch = Watch(header["limits"])
    *texts, stdin = blobs
    watch.run(header["command"], dict(zip(header["files"], texts, strict=True)), stdin, path, link)
    send(link, watch.told(), [bytes(watch.out), bytes(watch.err)])


class Watch:
    """Runs one program, and stops it with all that it began where a limit is passed."""

    def __init__(self, limits: Mapping[str, Any]) -> None:
        self.limits = limits
        self.out, self.err = bytearray(), bytearray()
        self.how = "exit"
        self.code: int | None = None
        self.begun = self.ended = self._looked = time.monotonic()
        self.cpu, self.memory, self.processes = 0.0, 0, 1

    def told(self) -> dict[str, Any]:
        """Return how it ended, as JSON can hold it."""
        return {
            "how": self.how,
            "code": self.code,
            "seconds": self.ended - self.begun,
            "cpu_seconds": self.cpu,
            "memory_bytes": self.memory,
            "processes": self.processes,
        }

    def run(
        self,
        command: Sequence[str],
        files: Mapping[str, bytes],
        stdin: bytes,
        path: str,
        link: socket.socket,
    ) -> None:
        """Run a program until it ends or is stopped; nothing of it is left then."""
        for name, text in files.items():
            with open(name, "wb") as file:  # noqa: PTH123
                file.write(text)
        with open("..stdin", "xb") as file:  # noqa: PTH123
            file.write(stdin)
        given = os.open("..stdin", os.O_RDONLY)
        os.unlink("..stdin")  # noqa: PTH108
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        self.begun = time.monotonic()
        child = os.fork()
        if child == 0:
            self._become(command, path, (given, out_end, err_end))
        for each in (given, out_end, err_end):
            os.close(each)
        status = self._watch(child, {out: self.out, err: self.err}, link)
        self.ended = time.monotonic()
        _end_all()
        self._drain({out: self.out, err: self.err})
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu = max(self.cpu, used.ru_utime + used.ru_stime)
        self.memory = max(self.memory, used.ru_maxrss * 1024)
        self._judge(status)

    def _judge(self, status: int | None) -> None:
        if status is None or self.how != "exit":
            return
        code = os.waitstatus_to_exitcode(status)
        if code == -signal.SIGXCPU:
            self.how = "cpu"
        elif code < 0:
            self.how, self.code = "signal", -code
        else:
            self.code = code

    def _become(self, command: Sequence[str], path: str, streams: Sequence[int]) -> None:
        try:
            os.setsid()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
                file.write("1000")
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            self._limit()
            os.execvpe(command[0], list(command), {**ENVIRONMENT, "PATH": path})
        except OSError as error:
            os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
        finally:
            os._exit(127)

    def _limit(self) -> None:
        asked = self.limits
        cpu = int(asked["cpu_seconds"]) + 1
        for kind, most in (
            (resource.RLIMIT_AS, asked["memory_bytes"]),
            (resource.RLIMIT_FSIZE, asked["file_bytes"]),
            (resource.RLIMIT_NOFILE, asked["open_files"]),
            # Beside them there is this process.
            (resource.RLIMIT_NPROC, asked["processes"] + 1 + _HEADROOM),
            # With 0 a machine's collector of crashes would still be called, with 1 it is not.
            (resource.RLIMIT_CORE, 1),
            (resource.RLIMIT_MEMLOCK, 1 << 16),
            (resource.RLIMIT_MSGQUEUE, 0),
            (resource.RLIMIT_SIGPENDING, 256),
            (resource.RLIMIT_RTPRIO, 0),
            (resource.RLIMIT_NICE, 0),
        ):
            hard = resource.getrlimit(kind)[1]
            least = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (least, least))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))

    def _watch(self, child: int, outputs: dict[int, bytearray], link: socket.socket) -> int | None:
        """Read and look until the program ends, and return its status; None where it is stopped."""
        poll = select.poll()
        ended = os.pidfd_open(child)
        for each in (*outputs, ended, link.fileno()):
            poll.register(each, select.POLLIN)
        while True:
            for ready, _ in poll.poll(_LOOK_SECONDS * 1000):
                if ready == link.fileno():
                    os._exit(1)  # whoever asked is gone
                if ready in outputs and not self._read(ready, outputs[ready]):
                    poll.unregister(ready)
            status = _reap(child)
            if status is not None:
                return status
            if self.how != "exit" or self._is_over():
                return None

    def _read(self, stream: int, into: bytearray) -> bool:
        chunk = os.read(stream, _CHUNK)
        room = self.limits["output_bytes"] - len(into)
        into += chunk[:room]
        if len(chunk) > room:
            self.how = "output"
        return bool(chunk)

    def _drain(self, outputs: dict[int, bytearray]) -> None:
        for stream, into in outputs.items():
            os.set_blocking(stream, False)
            with contextlib.suppress(BlockingIOError):
                while len(into) < self.limits["output_bytes"] and self._read(stream, into):
                    pass

    def _is_over(self) -> bool:
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return False
        self._looked = now
        cpu, resident, count, found = _look()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu = max(self.cpu, cpu + used.ru_utime + used.ru_stime)
        self.processes = max(self.processes, count)
        written, files = _written()
        if resident + written > self.limits["memory_bytes"]:
            # Memory that processes share was counted for each of them.
            resident = sum(_share(each, most) for each, most in found)
        self.memory = max(self.memory, resident + written)
        over = {
            "memory": resident + written > self.limits["memory_bytes"],
            "processes": count > self.limits["processes"],
            "files": files > self.limits["files"],
            "cpu": self.cpu > self.limits["cpu_seconds"],
            "time": now - self.begun > self.limits["seconds"],
        }
        self.how = next((name for name, passed in over.items() if passed), self.how)
        return self.how != "exit"


def _look() -> tuple[float, int, int, list[tuple[str, int]]]:
    """Seconds of processors, bytes, threads, and each process with its bytes."""
    cpu = count = 0
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and name != "1":
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                # After the name, which may hold anything; numbers as in proc(5), less 3.
                fields = file.read().rpartition(b")")[2].split()
                cpu += sum(int(fields[place]) for place in (11, 12, 13, 14))
                count += int(fields[17])
                found.append((name, int(fields[21]) * _PAGE))
    return cpu / _TICKS, sum(each for _, each in found), count, found


def _share(name: str, most: int) -> int:
    """Bytes of a process, of what it shares its share; all where it does not let itself be read."""
    try:
        with open(f"/proc/{name}/smaps_rollup", "rb") as file:  # noqa: PTH123
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
    except (OSError, StopIteration):
        return most


def _written() -> tuple[int, int]:
    """Bytes and files in the folders that can be written to."""
    found = [os.statvfs(place) for place in _WRITABLE]
    return (
        sum((each.f_blocks - each.f_bfree) * each.f_frsize for each in found),
        sum(each.f_files - each.f_ffree for each in found),
    )


def _reap(child: int) -> int | None:
    """Let go of what has ended; returns the status of one child if it is among it."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                found = status
    return found


def _end_all() -> None:
    """Leave no process but this one."""
    while True:
        try:
            os.kill(-1, signal.SIGKILL)
            os.waitpid(-1, 0)
        except ProcessLookupError:
            return
        except ChildProcessError:
            time.sleep(0.001)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
