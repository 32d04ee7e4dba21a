"""The terminal at which a command was started: what a person is asked there, and says.

A stage's process is in the session of the command, so that it opens the terminal by itself; where
there is none, as in a scheduled run, nobody can be asked.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from posttrain.stage.errors import UserError
from posttrain.stage.escapes import printable

_TERMINAL = "/dev/tty"
_MOST_BYTES = 1 << 16
"""Of a line; a terminal itself mostly gives no more than 4 KiB at once."""


@dataclass(frozen=True)
class PersonTerminal:
    """A terminal with somebody at it."""

    descriptor: int
    lock: Path
    """A file that is there: one process asks at a time."""

    def ask(self, shown: str, prompt: str) -> str | None:
        r"""Show a text, and wait for a line; one that ends with a backslash goes on in the next.

        Args:
            shown: What is read before; what would move the cursor is escaped.
            prompt: What stands before the place where the answer is typed.

        Returns:
            What was said; None where the input has ended.

        """
        with self._turn():
            self._write(f"\n{printable(shown, kept=chr(10))}\n")
            lines: list[str] = []
            while True:
                self._write(printable(prompt) if not lines else "... ")
                if (line := self._line()) is None:
                    self._write("\n")
                    return None
                if not line.endswith("\\"):
                    return "\n".join((*lines, line))
                lines.append(line.removesuffix("\\"))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self.lock.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield

    def _write(self, text: str) -> None:
        left = text.encode()
        while left:
            left = left[os.write(self.descriptor, left) :]

    def _line(self) -> str | None:
        read = b""
        while not read.endswith(b"\n") and len(read) < _MOST_BYTES:
            try:
                part = os.read(self.descriptor, _MOST_BYTES)
            except OSError:  # it was closed
                part = b""
            if not part:
                # What was begun and not ended by a new line counts as nothing that was said.
                return None
            read += part
        return read.decode(errors="replace").removesuffix("\n")


def open_terminal(who: str, lock: Path) -> PersonTerminal:
    """Open the terminal of this process.

    Args:
        who: Wants somebody at it, for the sentence where there is nobody.
        lock: A file that is there, the same for all that ask at once.

    Returns:
        The terminal.

    Raises:
        UserError: This process has none, or is in the background of it.

    """
    remedy = "run it in the foreground of a terminal, or let somebody else play"
    try:
        descriptor = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        front = os.tcgetpgrp(descriptor)
    except OSError:
        raise UserError(
            f"{who} asks a person at the terminal, and there is none here, as in a scheduled run;"
            f" {remedy}"
        ) from None
    if front != os.getpgrp():
        os.close(descriptor)
        raise UserError(
            f"{who} asks a person at the terminal, and this command is in its background; {remedy}"
        )
    return PersonTerminal(descriptor, lock)
