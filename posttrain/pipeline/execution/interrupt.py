"""Ctrl-C and SIGTERM: stop the stages at once, then let the run end as any failed run does."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """While the block runs, the first signal calls `stop`; a further one raises KeyboardInterrupt.

    Raising at the first would leave the main thread waiting for a stage thread, as long as the
    stage lasts. Outside the main thread, where Python delivers no signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.default_int_handler)
        stop()

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
