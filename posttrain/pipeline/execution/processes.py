"""Processes that wait for a stage: each is forked ahead of need, while the one before it works."""

import multiprocessing
import os
import platform
import sys
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkServerContext, ForkServerProcess

from posttrain.pipeline.determinism import library_environment
from posttrain.pipeline.execution import child
from posttrain.pipeline.execution.assignment import Assignment, Order
from posttrain.pipeline.systems import refuse_other_systems
from posttrain.stage.interrupts import COMMAND, held_back
from posttrain.stage.kernels import Kernels

_FIRST = "posttrain.pipeline.execution.fork_server"
_PRELOAD = "posttrain.pipeline.execution.preload"
_PRELOAD_TORCH = "posttrain.pipeline.execution.preload_torch"
_PRELOAD_MODELS = "posttrain.pipeline.execution.preload_models"
_WITHOUT_TORCH = frozenset({"numpy", "polars", "pyarrow", "pydantic", "pydantic_core", "yaml"})
"""Packages that import no torch, of those that small stages import."""

_EXIT_SECONDS = 2.0
# A process that grew larger than this is waited for: its memory may be what the next one needs.
_LARGE_BYTES = 1 << 30


_CHANGING = threading.Lock()


@contextmanager
def _environment_with(variables: Mapping[str, str]) -> Iterator[None]:
    """Lend variables to a process that is started in here; the caller's own stay as they were.

    `os.environ` is left alone: other threads go through it meanwhile (Prefect as it is imported),
    and fail where a variable goes away under them.
    """
    with _CHANGING:
        before = {name: os.environ.get(name) for name in variables}
        for name, value in variables.items():
            os.putenv(name, value)
        try:
            yield
        finally:
            for name, own in before.items():
                if own is None:
                    os.unsetenv(name)
                else:
                    os.putenv(name, own)


def _preloads(packages: Collection[str] | None) -> list[str]:
    """What the server imports for stages that import these, or any: none that is large in vain.

    A package that is not known to do without torch may import it.
    """
    if packages is None or "transformers" in packages:
        return [_PRELOAD, _PRELOAD_TORCH, _PRELOAD_MODELS]
    return [_PRELOAD] if _WITHOUT_TORCH.issuperset(packages) else [_PRELOAD, _PRELOAD_TORCH]


@dataclass(frozen=True)
class StageWorker:
    """A process that takes one order, and the ends of its pipes and of its door that are ours."""

    process: ForkServerProcess
    orders: connection.Connection
    events: connection.Connection
    door: connection.Connection

    @property
    def pid(self) -> int:
        """Number of the process."""
        assert self.process.pid is not None
        return self.process.pid

    def give(self, assignment: Assignment) -> bool:
        """Let it begin, where this process is and with the modules that this process finds.

        False where it was killed before it could.
        """
        try:
            self.orders.send(Order(assignment, tuple(sys.path), os.getcwd()))  # noqa: PTH109
        except OSError:
            return False
        finally:
            self.orders.close()
        return True

    def end(self, *, patient: bool) -> None:
        """Leave no process behind: one that has sent its last word gets a moment to exit."""
        self.orders.close()
        self.door.close()
        self.process.join(timeout=_EXIT_SECONDS if patient else 0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.events.close()


class Workers:
    """Forks workers from a server that has imported what they need; one is always ready.

    Forking copies the page tables of all that is imported, and exiting gives them back: most of
    what a short stage costs. Both happen beside the stages here, not between them.
    """

    def __init__(
        self,
        threads: int,
        *,
        kernels: Kernels = "portable",
        packages: Collection[str] | None = None,
    ) -> None:
        self._preload = [_FIRST, *_preloads(packages)]
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._threads, self._kernels = threads, kernels
        self._lock = threading.Lock()
        self._forking = threading.Lock()
        self._spare: StageWorker | None = None
        self._leaving: deque[StageWorker] = deque()
        self._closed = False

    def warm(self) -> None:
        """Start the fork server now, so that its imports overlap with the caller's own.

        Raises:
            UserError: It would not start on this system.

        """
        refuse_other_systems("stages run", platform.system())
        from multiprocessing import forkserver, resource_tracker

        self._context.set_forkserver_preload(self._preload)
        own = {COMMAND: str(os.getpid())}
        with _environment_with({**library_environment(self._threads, self._kernels), **own}):
            # It lets two of the signals through again once it has begun, so it goes first.
            with held_back():
                resource_tracker.ensure_running()
            with held_back():
                forkserver.ensure_running()

    def take(self) -> StageWorker:
        """A worker that waits for its order; the next one is forked meanwhile."""
        self.warm()
        ready = self._waiting()
        threading.Thread(target=self._replenish, name="fork", daemon=True).start()
        return ready or self._fork()

    def dismiss(self, worker: StageWorker, *, num_bytes: int) -> None:
        """End a worker: at once where it is large, else while the run goes on."""
        if num_bytes > _LARGE_BYTES:
            worker.end(patient=True)
            return
        with self._lock:
            self._leaving.append(worker)

    def close(self, *, patient: bool = True) -> None:
        """End every worker, each after a moment where that is `patient`; none is forked again."""
        self._closed = True
        if not patient:
            # They end with this process, and so does one that is being forked.
            return
        with self._forking, self._lock:
            for worker in (self._spare, *self._leaving):
                if worker is not None:
                    worker.end(patient=True)
            self._spare = None
            self._leaving.clear()

    def _waiting(self) -> StageWorker | None:
        """The worker that was forked ahead, unless another thread took it or it was killed."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None and not spare.process.is_alive():
            spare.end(patient=False)
            return None
        return spare

    def _replenish(self) -> None:
        """Collect the workers that have exited, and fork one ahead."""
        with self._forking:
            with self._lock:
                while self._leaving and not self._leaving[0].process.is_alive():
                    self._leaving.popleft().end(patient=True)
                enough = self._closed or self._spare is not None
            if not enough:
                # Who ends everything ends the fork server too; who takes a worker then is told.
                with suppress(EOFError, OSError):
                    forked = self._fork()
                    with self._lock:
                        self._spare = forked

    def _fork(self) -> StageWorker:
        order, orders = self._context.Pipe(duplex=False)
        events, event = self._context.Pipe(duplex=False)
        door, inside = self._context.Pipe()
        theirs = (order, event, inside)
        process = self._context.Process(target=child.main, args=theirs, daemon=True)
        process.start()
        for each in theirs:
            each.close()
        return StageWorker(process, orders, events, door)
