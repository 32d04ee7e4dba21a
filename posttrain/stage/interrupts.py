"""What asks a command to end (SIGINT, SIGTERM, SIGHUP): one sentence, true records, 128 + n."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SENTENCE = "stopped; run the same command again to go on from here"
COMMAND = "POSTTRAIN_COMMAND"
"""Variable by which the fork server knows whose it is: that process may be gone already."""
# A library may swallow the exception, or wait for a server: after this long nothing is waited for.
# What a command leaves behind then is what a kill leaves, with which every record reckons.
PATIENCE_SECONDS = 2.0

SignalHandler = Callable[[int, FrameType | None], None]


class Interrupted(BaseException):
    """A signal asked the command to end. No `KeyboardInterrupt`, of which libraries think much."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def hear(handler: SignalHandler) -> dict[int, Any]:
    """Let `handler` hear the signals; returns who heard them before. What nohup ignores stays so.

    Args:
        handler: Called in the main thread with the signal's number.

    Returns:
        The former handlers by number.

    """
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heard}


@contextmanager
def held_back() -> Iterator[None]:
    """Block the signals in this thread, and in the processes that it starts until they hear them.

    A process that begins to import has no handler yet: a terminal's Ctrl-C, which reaches all of
    them, would end it with a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_parent() -> None:
    """Ignore the signals from now on, also those that were held back: the parent ends us."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def end_now(number: int, _frame: FrameType | None = None) -> None:
    """End at once with the sentence: where nothing was begun, or nothing ends by itself."""
    with suppress(OSError):  # the terminal may be what has gone
        os.write(2, f"{SENTENCE}\n".encode())
    os._exit(128 + number)


def let_end(_number: int, _frame: FrameType | None = None) -> None:
    """Let a command that has done all its work end by itself, soon, as the success that it is."""
    timer = threading.Timer(PATIENCE_SECONDS, os._exit, [0])
    timer.daemon = True
    timer.start()


def give_up_later(number: int, seconds: float | None = None) -> None:
    """End for certain, even if what runs now never returns.

    Args:
        number: The signal's.
        seconds: From now; without them as long as anything is waited for.

    """
    timer = threading.Timer(PATIENCE_SECONDS if seconds is None else seconds, end_now, [number])
    timer.daemon = True
    timer.start()


def interrupt(number: int, _frame: FrameType | None = None) -> None:
    """Raise `Interrupted`, and end for certain a while later."""
    give_up_later(number)
    raise Interrupted(number)
