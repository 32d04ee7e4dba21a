"""The process that writes a view, such as MLflow's, and the hand of the run that moves it.

mlflow takes seconds of Python to import and some 30 ms for each stage. A thread of the run would
take them from the starts of its stages, with which it shares one interpreter lock; a process runs
beside them, on another core. Each operation is answered before the next one is sent, so what a
killed run leaves behind ends with the operation that it was at.
"""

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import posttrain
from posttrain.provenance.ledger.processes import this_process
from posttrain.stage.errors import first_line

_PR_SET_PDEATHSIG = 1
# The name of a method of the writer, and its arguments.
Operation = tuple[str, tuple[Any, ...]]
# The view's ids that are new, by handle; and what went wrong, if anything did.
_Answer = tuple[dict[str, str], str | None]


class WriterFailed(Exception):
    """The writer could not carry out an order; the text says why in one line."""


class WriterProcess:
    """Starts the writer; `do` returns when an operation is done, or raises `WriterFailed`."""

    def __init__(self, writer: str) -> None:
        self._connection, theirs = Pipe()
        package = str(Path(posttrain.__file__).parents[1])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    __name__,
                    writer,
                    *map(str, (theirs.fileno(), os.getpid())),
                ],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                # Ctrl-C is the run's to handle: it still tells how its stages ended.
                start_new_session=True,
            )

    def open(self, state: Path, uri: str | None) -> None:
        """Connect to a store; before, there is nothing but imports."""
        try:
            self._ask((state, uri, this_process()))
        except WriterFailed:
            self.close()
            raise

    def do(self, operation: Operation) -> dict[str, str]:
        """Have an operation done; the view's ids of the runs that it opened, by handle."""
        return self._ask(operation)

    def close(self, *, seconds: float = 0.0) -> None:
        """Let the process end; after `seconds` it is killed."""
        self._connection.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, message: object) -> dict[str, str]:
        try:
            self._connection.send(message)
            answer: _Answer = self._connection.recv()
            external, problem = answer
        except (EOFError, OSError):
            status = self._process.wait()
            raise WriterFailed(f"the process that writes it ended with status {status}") from None
        if problem is not None:
            raise WriterFailed(problem)
        return external


def main() -> None:
    """Body of the process: carry out orders until the other end is closed."""
    writer, channel, parent = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The run may be ended while this one still imports.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):
        return  # it was ended before the kernel could tell
    with Connection(int(channel)) as connection:
        try:
            for answer in answers(writer, _asked(connection), alone=True):
                connection.send(answer)
        except BrokenPipeError:
            return


def _asked(connection: Connection) -> Iterator[Any]:
    try:
        while True:
            yield connection.recv()
    except (EOFError, ConnectionResetError):
        return


def answers(writer: str, asked: Iterator[Any], *, alone: bool = False) -> Iterator[_Answer]:
    """Open a writer and carry out what is asked of it, until something fails.

    Args:
        writer: A module with `prepare`, which imports what takes long, and its function that opens
            the writer, with a colon between.
        asked: First where to write and whose runs they are, then operations.
        alone: Whether this process is the writer's own.

    Yields:
        An answer to each.

    """
    opened = None
    try:
        name, _, opens = writer.partition(":")
        module = importlib.import_module(name)
        module.prepare(alone=alone)
        state, uri, owner = next(asked)
        external: dict[str, str] = {}
        opened = getattr(module, opens)(state, uri, external, owner=owner)
        yield {}, None
        for name, arguments in asked:
            known = set(external)
            getattr(opened, name)(*arguments)
            yield {key: external[key] for key in external.keys() - known}, None
    except StopIteration:
        return  # there was nothing to write
    except Exception as error:  # noqa: BLE001 - the boundary: tracking never ends a run
        yield {}, f"{type(error).__name__}: {first_line(error)}"
    finally:
        if opened is not None:
            with contextlib.suppress(Exception):
                opened.close()


if __name__ == "__main__":
    main()
