"""A server of tools as a child of this process, spoken to by pipes: a message a line.

The child inherits what the stage is held to: the files it may read, and that it talks to nobody.
It ends with this process, also where that is killed: a shell beside it reads a pipe that nobody
writes to, and ends all that the child started when the pipe has no writer any more.
"""

import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.util import Finalize

from posttrain.backends.mcp.session import Carrier, JsonMessage, reply_to_request

_GRACE_SECONDS = 2
"""A server that is let go has so long to end by itself."""
# `$$` is the shell's own number, which is the server's and its group's from `exec` on.
_LINE = (
    f"(read -r _ <&9; sleep {_GRACE_SECONDS}; kill -9 -$$) </dev/null >/dev/null 2>&1 &"
    ' exec "$@" 9<&-'
)
_MOST_BYTES = 4 << 20
"""Of one message."""
_KEPT_BYTES = 4096
"""Of what it wrote to its errors."""


class Child(Carrier):
    """A server that was started by its command."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it.

        Args:
            command: Program and arguments; `python` is the interpreter of this process.

        """
        program = sys.executable if command[0] == "python" else command[0]
        theirs_in, self._in = os.pipe()
        self._out, theirs_out = os.pipe()
        self._errors, theirs_errors = os.pipe()
        theirs_life, self._life = os.pipe()
        own = (self._in, self._out, self._errors, self._life)
        theirs = (theirs_in, theirs_out, theirs_errors, theirs_life)
        # None of these may be where the child expects another one.
        moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 10) for each in theirs]
        try:
            self.process = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", _LINE, "sh", program, *command[1:]],
                dict(os.environ),
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, each, at)
                    for each, at in zip(moved, (0, 1, 2, 9), strict=True)
                ],
                setsid=True,
            )
        finally:
            for each in (*theirs, *moved):
                os.close(each)
        os.set_blocking(self._in, False)
        self._unread, self._said = b"", b""
        # Also where a process of a stage ends, which does without `atexit`.
        self._ending = Finalize(self, _end, (self.process, *own), exitpriority=10)
        self._own = own

    def ask(self, message: JsonMessage, *, seconds: float) -> JsonMessage:
        """Send a line and read lines until one answers it; see `Carrier.ask`."""
        deadline = time.monotonic() + seconds
        self._send(message, deadline)
        while True:
            told = self._receive(deadline)
            if (reply := reply_to_request(told)) is not None:
                self._send(reply, deadline)
            elif told.get("id") == message["id"]:
                return told

    def tell(self, message: JsonMessage) -> None:
        """Send a line; see `Carrier.tell`."""
        self._send(message, time.monotonic() + _GRACE_SECONDS)

    def close(self, *, hangs: bool = False) -> None:
        """End the server and all that it started, and wait for it; see `Carrier.close`."""
        if hangs:
            with suppress(ProcessLookupError):
                os.killpg(self.process, signal.SIGKILL)
        self._ending()

    def release(self) -> None:
        """Close the pipes of a server that is the parent's."""
        for each in self._own:
            with suppress(OSError):
                os.close(each)

    @property
    def last_words(self) -> str:
        """The last line that it wrote to its errors; empty where it wrote none."""
        with suppress(TimeoutError, OSError):
            while self._ready([self._errors], [], time.monotonic() + 0.05):
                if not self._hear():
                    break
        return self._said.decode(errors="replace").strip().rpartition("\n")[2].strip()

    def _send(self, message: JsonMessage, deadline: float) -> None:
        left = json.dumps(message).encode() + b"\n"
        while left:
            ready = self._ready([self._errors], [self._in], deadline)
            if self._errors in ready:
                self._hear()
            if self._in in ready:
                try:
                    left = left[os.write(self._in, left) :]
                except OSError:
                    raise ConnectionError("it has ended") from None

    def _receive(self, deadline: float) -> JsonMessage:
        while b"\n" not in self._unread:
            ready = self._ready([self._out, self._errors], [], deadline)
            if self._errors in ready:
                self._hear()
            if self._out in ready:
                read = os.read(self._out, 1 << 16)
                self._unread += read
                if not read:
                    raise ConnectionError("it has ended")
                if len(self._unread) > _MOST_BYTES:
                    raise ConnectionError(f"it says more than {_MOST_BYTES} bytes at once")
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            return dict(json.loads(line))
        except (ValueError, TypeError):
            raise ConnectionError("it writes what is no message to its output") from None

    def _ready(self, reads: list[int], writes: list[int], deadline: float) -> set[int]:
        reads = [each for each in reads if each >= 0]
        readable, writable, _ = select.select(
            reads, writes, [], max(0.0, deadline - time.monotonic())
        )
        if not readable and not writable:
            raise TimeoutError
        return {*readable, *writable}

    def _hear(self) -> bool:
        """Read its errors, so that it never waits for somebody who does."""
        read = os.read(self._errors, 1 << 16)
        if not read:
            # Closed by the server: nothing is heard of it any more, and select would not wait.
            self._errors = -1
        self._said = (self._said + read)[-_KEPT_BYTES:]
        return bool(read)


def _end(process: int, *pipes: int) -> None:
    """Close the server's input, at which it ends; then kill what is left of its group."""
    own_in, *others = pipes
    os.close(own_in)
    deadline = time.monotonic() + _GRACE_SECONDS
    with suppress(ChildProcessError):
        # It is not waited for yet: until then its number is nobody else's.
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while os.waitid(os.P_PID, process, how) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
    for each in others:
        os.close(each)
