"""Interchangeable processes of this machine that share out work, where no cluster is asked for."""

import json
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Any

from posttrain.backends.cluster.settings import TorchSettings
from posttrain.backends.cluster.worker_pool import MAX_LOSSES, PoolWorker
from posttrain.backends.sandbox.door import door_descriptor, enter_stage
from posttrain.stage.errors import UserError
from posttrain.stage.rules import Heard, keeping, present_rules

_GRACE_SECONDS = 5.0
"""How long a worker that nobody waits for may go on with what it is doing."""
_SECONDS_TO_CLOSE = 3.0
"""How long it may take to give up what it holds open, if it is still at work then."""
_LENGTH = struct.Struct("<Q")
# Literal text: what it imports can be seen, and counts.
_WORKER = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from posttrain.backends.cluster.local_pool import work_on_request
work_on_request()
"""


class LocalPool:
    """Workers, each in a process of its own that lives no longer than this one.

    They start when the pool does, and beside it: nobody waits until there is something to do. A
    piece whose process is gone is done again by another, with the tools that it was begun with.
    What goes through the pipes was written by the same code on both sides, as with
    `multiprocessing`; workers begin from scratch, as a process that has computed with threads
    cannot be forked.
    """

    def __init__(self, count: int, make: Callable[..., PoolWorker], *arguments: Any) -> None:
        # Apart, as the rules are kept before anything of the stage is unpickled, which imports it.
        work = pickle.dumps((TorchSettings.present(), make, arguments))
        self._start = pickle.dumps((present_rules(), door_descriptor(), work))
        self._idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        self._processes = [_Process(self._start) for _ in range(count)]
        for process in self._processes:
            self._idle.put(process)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="local-pool")
        self._tools = b""

    @property
    def pids(self) -> list[int]:
        """Ids of the processes that are there now."""
        return [process.pid for process in self._processes]

    def equip(self, version: int, tools: Any) -> None:
        """Give the tools for all later work.

        Args:
            version: Which ones.
            tools: Copied at once, so that they may change later.

        """
        self._tools = pickle.dumps((version, tools), protocol=5)

    def begin(self, piece: Any) -> "Future[Any]":
        """Have one piece done with the present tools; what comes of it is had by `result`."""
        return self._threads.submit(self._done, self._tools, pickle.dumps(piece, protocol=5))

    def result(self, begun: "Future[Any]") -> Any:
        """Return what came of a piece, once it is done; raises what the worker raised."""
        return begun.result()

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        for process in self._processes:
            process.dismiss()
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.end()

    def _done(self, tools: bytes, piece: bytes) -> Any:
        for _ in range(MAX_LOSSES):
            process = self._idle.get()
            try:
                failed, found = process.ask(tools, piece)
            except (OSError, EOFError):
                if not process.renewed():
                    raise
                continue
            finally:
                self._idle.put(process)
            if isinstance(found, UserError):
                raise UserError(str(found)) from None
            if failed:
                raise RuntimeError(f"a process that draws ahead failed:\n{found}")
            return found
        raise UserError(
            f"a piece of work ended {MAX_LOSSES} processes, most likely for want of memory; lower"
            " the number of processes, or see the stage's log"
        )


class _Process:
    """One worker, as the process that asks it knows it."""

    def __init__(self, start: bytes) -> None:
        self._start = start
        self._dismissed = self._told = False
        self._process = _started()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, tools: bytes, piece: bytes) -> tuple[bool, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if not self._told:
            _send(self._process.stdin, self._start)
            self._told = True
        _send(self._process.stdin, tools)
        _send(self._process.stdin, piece)
        answer: tuple[bool, Any] = pickle.loads(_receive(self._process.stdout))  # noqa: S301 - ours
        return answer

    def renewed(self) -> bool:
        if self._dismissed:
            return False
        pid = self._process.pid
        self.end()
        print(f"process {pid} is gone; another one does its work", flush=True)
        self._process, self._told = _started(), False
        return True

    def dismiss(self) -> None:
        """Say that there is nothing more to do; what it does it may end."""
        self._dismissed = True
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def end(self) -> None:
        try:
            self._process.wait(timeout=2 * _GRACE_SECONDS if self._dismissed else 0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _started() -> subprocess.Popen[bytes]:
    door = door_descriptor()
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=() if door is None else (door,),
    )


class Served:
    """The worker of this process, which is made when there is something to do."""

    def __init__(self) -> None:
        self._heard: Heard | None = None
        self._work = b""
        self._worker: PoolWorker | None = None
        self._closing = threading.Lock()

    def done(self, start: bytes, tools: bytes, piece: bytes) -> Any:
        """Do a piece of work under the rules of the stage.

        Args:
            start: What the worker is made of, the same every time.
            tools: What it is equipped with.
            piece: What it is to do.

        Returns:
            What came of it.

        """
        if self._heard is None:
            rules, door, self._work = pickle.loads(start)  # noqa: S301 - ours
            if door is not None:
                enter_stage(door)
            self._heard = rules()
        with keeping(self._heard):
            if self._worker is None:
                settings, make, arguments = pickle.loads(self._work)  # noqa: S301 - ours
                settings.take_over()
                self._worker, self._work = make(*arguments), b""
            assert self._worker is not None
            self._worker.equip(*pickle.loads(tools))  # noqa: S301 - ours
            return self._worker.do(pickle.loads(piece))  # noqa: S301 - ours

    def close(self) -> None:
        """Close the worker, if there is one; once, and whoever comes second waits."""
        with self._closing:
            worker, self._worker = self._worker, None
            if worker is None:
                return
            try:
                worker.close()
            except Exception:  # noqa: BLE001 - nobody is there to be told, and it ends anyway
                traceback.print_exc()


def work_on_request() -> None:
    """Do pieces of work until there are no more; what a worker's process does."""
    # Who is interrupted at a terminal ends what works for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # What a piece of work prints is no answer.
    os.dup2(2, 1)
    asked: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    served = Served()
    listener = threading.Thread(target=_listen, args=(sys.stdin.buffer, asked, served), daemon=True)
    listener.start()
    try:
        _answer_all(asked, answers, served)
    finally:
        served.close()


def _answer_all(
    asked: "queue.SimpleQueue[bytes | None]", answers: IO[bytes], served: Served
) -> None:
    first = asked.get()
    if first is None:
        return
    while (tools := asked.get()) is not None and (piece := asked.get()) is not None:
        try:
            answer: tuple[bool, Any] = (False, served.done(first, tools, piece))
        except UserError as error:
            answer = (True, UserError(str(error)))
        except Exception:  # noqa: BLE001 - the boundary of a process: it is told to who asked
            answer = (True, traceback.format_exc())
        try:
            _send(answers, pickle.dumps(answer, protocol=5))
        except BrokenPipeError:
            return


def _listen(questions: IO[bytes], asked: "queue.SimpleQueue[bytes | None]", served: Served) -> None:
    """Take what comes; where nobody is there any more, nothing is worked on for long."""
    with suppress(EOFError):
        while True:
            asked.put(_receive(questions))
    asked.put(None)
    threading.Event().wait(_GRACE_SECONDS)
    closing = threading.Thread(target=served.close, daemon=True)
    closing.start()
    closing.join(_SECONDS_TO_CLOSE)
    os._exit(1)


def _send(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(_LENGTH.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(pipe, _LENGTH.size))
    return _exactly(pipe, length)


def _exactly(pipe: IO[bytes], length: int) -> bytes:
    content = pipe.read(length)
    if len(content) < length:
        raise EOFError
    return content
