"""Many programs, a few at a time, each in a sandbox that was started before it came."""

import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from posttrain.backends.sandbox.launch import Sandbox
from posttrain.backends.sandbox.program import Program, ProgramEnd

_MOST_AT_ONCE = 16


class SandboxPool:
    """Runs programs, each in a sandbox of its own, and starts the next sandboxes meanwhile.

    Args:
        at_once: How many run at once; as many as there are processors, where it is not given.
        ahead: How many empty ones wait when nothing runs.

    """

    def __init__(self, at_once: int = 0, *, ahead: int | None = None) -> None:
        self.at_once = at_once or min(_MOST_AT_ONCE, len(os.sched_getaffinity(0)))
        self._ahead = self.at_once if ahead is None else ahead
        # A sandbox ends with the thread that started it: these last as long as the pool.
        self._threads = ThreadPoolExecutor(self.at_once, thread_name_prefix="sandbox")
        self._waiting: deque[Sandbox] = deque()
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        """Return the pool."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def run_all(self, programs: Sequence[Program]) -> list[ProgramEnd]:
        """Run programs; threads may do so at once.

        Args:
            programs: What to run.

        Returns:
            How each ended, in their order.

        Raises:
            UserError: No sandbox can be started here.

        """
        left = len(programs)
        futures = []
        for program in programs:
            left -= 1
            futures.append(self._threads.submit(self._run, program, left))
        return [future.result() for future in futures]

    def close(self) -> None:
        """End what waits; what runs is waited for."""
        self._threads.shutdown(cancel_futures=True)
        with self._lock:
            self._closed = True
            for sandbox in self._waiting:
                sandbox.close()
            self._waiting.clear()

    def _run(self, program: Program, left: int) -> ProgramEnd:
        end = self._take(left).run(program)
        if end.how == "lost":
            # One that waited may have been killed, for memory that others wanted, say.
            end = self._take(left).run(program)
        return end

    def _take(self, left: int) -> Sandbox:
        """Take a sandbox that waits, or start one; and start another for who comes next."""
        with self._lock:
            ready = self._waiting.popleft() if self._waiting else None
            wanted = max(self._ahead, min(left, self.at_once)) > len(self._waiting)
        sandbox = ready if ready is not None and ready.is_alive else Sandbox()
        if wanted:
            following = Sandbox()
            with self._lock:
                self._waiting.append(following)
        return sandbox
