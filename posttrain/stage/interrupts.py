"""What asks a command to end (SIGINT, SIGTERM, SIGHUP): one sentence, true records, 128 + n."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SENTENCE = "stopped; run the same command again to go on from here"
# A library may swallow the exception, or wait for a server: after this long nothing is waited for.
PATIENCE_SECONDS = 20.0

SignalHandler = Callable[[int, FrameType | None], None]


class Interrupted(KeyboardInterrupt):
    """A signal asked the command to end."""

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


def end_now(number: int, _frame: FrameType | None = None) -> None:
    """End at once with the sentence: where nothing was begun, or nothing ends by itself."""
    os.write(2, f"{SENTENCE}\n".encode())
    os._exit(128 + number)


def give_up_later(number: int) -> None:
    """End for certain, even if what runs now never returns."""
    timer = threading.Timer(PATIENCE_SECONDS, end_now, [number])
    timer.daemon = True
    timer.start()


def interrupt(number: int, _frame: FrameType | None = None) -> None:
    """Raise `Interrupted`, and end for certain a while later."""
    give_up_later(number)
    raise Interrupted(number)
