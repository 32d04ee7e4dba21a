"""How a run ends that a signal asks to end: what works is stopped, and what is open is closed."""

import contextvars
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from posttrain.stage.interrupts import Interrupted, end_now, give_up_later, hear

GRACE_SECONDS = 1.5
"""For a stage's last checkpoint, where nobody says how long there is."""
# A wrapper of the command may hand on what the terminal has sent to the command as well.
_ONE_REQUEST_SECONDS = 0.5
# After the grace: for the stages' records, and for those of the run and its tracker.
_UNWIND_SECONDS, _CLOSE_SECONDS = 0.4, 0.5
_POLL_SECONDS = 0.1
# What ends a process of ours comes to us as well, and perhaps a moment later.
_MOMENT_SECONDS = 0.3


class Interruption:
    """Whether a run was asked to end, by which signal, and how long its stages still have."""

    def __init__(self) -> None:
        self._asked, self._counting = threading.Event(), threading.Lock()
        self._number: int = signal.SIGINT
        self._at = 0.0
        self._grace = GRACE_SECONDS
        self._abortable = False
        self._num_saving = 0

    def request(self, number: int = signal.SIGINT, grace: float = GRACE_SECONDS) -> None:
        """Let no stage begin, and those that run end.

        Args:
            number: The signal that asks for it.
            grace: Seconds for their last checkpoints.

        """
        if not self._asked.is_set():
            self._number, self._grace, self._at = number, grace, time.monotonic()
            self._asked.set()

    @property
    def requested(self) -> bool:
        """True once the run was asked to end."""
        return self._asked.is_set()

    def explains_failure(self) -> bool:
        """Say whether a process of ours that ended now did so for what asks us to end."""
        return self._asked.wait(_MOMENT_SECONDS)

    def error(self) -> Interrupted:
        """What ends the work."""
        return Interrupted(self._number)

    def grace_left(self) -> float:
        """Seconds that are left for last checkpoints."""
        return max(0.0, self._at + self._grace - time.monotonic())

    @contextmanager
    def heard(self, *, notice: float, ends_process: bool = True) -> Iterator[None]:
        """Be asked by the first signal, and raise `Interrupted` at the block's end.

        Raising at once would leave records half written. What is not over soon after is ended, and
        a further signal ends at once: all that is recorded reckons with a kill. Outside the main
        thread, where Python delivers no signals, nothing is changed.

        Args:
            notice: Seconds from SIGTERM to the end, as who sends it promises.
            ends_process: Whether this process ends with the run; a notebook's goes on, and no
                signal ends it.

        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupt(number: int, _frame: FrameType | None) -> None:
            if self.requested and time.monotonic() - self._at > _ONE_REQUEST_SECONDS:
                if ends_process:
                    end_now(number)
            elif not self.requested:
                grace = max(notice, GRACE_SECONDS) if number == signal.SIGTERM else GRACE_SECONDS
                if ends_process:
                    give_up_later(number, grace + _UNWIND_SECONDS + _CLOSE_SECONDS)
                self.request(number, grace)

        before = hear(interrupt)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if self.requested:
                raise self.error() from None

    def carry_out(self, work: Callable[[], None]) -> None:
        """Do `work` in a thread, while this one stays free to hear signals.

        The main thread hears nothing while a library holds it, and libraries that are called in it
        put handlers of their own in the place of ours.

        Args:
            work: Raises what ends it; once the run was asked to end, it is left to itself after a
                while.

        Raises:
            Interrupted: The run was asked to end.

        """
        ended: list[BaseException | None] = []

        def carried() -> None:
            try:
                work()
                ended.append(None)
            except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
                ended.append(error)

        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=[carried], name="run", daemon=True)
        thread.start()
        while thread.is_alive() and not self._is_left_to_itself():
            thread.join(_POLL_SECONDS)
        if self.requested:
            raise self.error()
        if ended[0] is not None:
            raise ended[0]

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Say that a stage works here which would use the grace for a checkpoint."""
        with self._counting:
            self._num_saving += 1
        try:
            yield
        finally:
            with self._counting:
                self._num_saving -= 1

    @contextmanager
    def abortable(self) -> Iterator[None]:
        """Say of a part of the work that nothing in it has to be brought to its end."""
        self._abortable = True
        try:
            yield
        finally:
            self._abortable = False
        if self.requested:
            raise self.error()

    def _is_left_to_itself(self) -> bool:
        grace = self._grace if self._num_saving else 0.0
        spent = time.monotonic() > self._at + grace + _UNWIND_SECONDS
        return self.requested and (self._abortable or spent)
