"""Stages that begin while Prefect comes up, which takes longer than most of a small recipe.

Prefect's task runs take over from there: each hands on what became of a stage that has begun, and
begins the others. Its times of these task runs count from then on; the ledger has the stages' own.
"""

import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self

from posttrain.pipeline.execution.executor import Executor
from posttrain.provenance.ledger import StageRun


class HeadStart:
    """Brings stages up to date as they get ready, until it is handed over or one fails."""

    def __init__(self, executor: Executor, names: Sequence[str], *, slots: int) -> None:
        """Prepare a head start; nothing begins yet.

        Args:
            executor: Brings a stage up to date.
            names: Stages to run, in an order in which they can.
            slots: Stages that may run at once, whoever began them.

        """
        self._executor, self._names = executor, names
        self._lanes = threading.Semaphore(slots)
        self._pool = ThreadPoolExecutor(max_workers=slots, thread_name_prefix="ahead")
        self._lock = threading.RLock()
        self._begun: dict[str, Future[StageRun]] = {}
        self._taken: set[str] = set()
        self._over = False

    def begin(self) -> None:
        """Begin every stage that is ready; each that ends well begins those that waited for it."""
        with self._lock:
            waiting = {name for name in self._names if not _is_made(self._begun.get(name))}
            for name in self._names:
                upstream = self._executor.planner.dag.upstream(name)
                if not self._over and name not in self._begun and not waiting & {*upstream}:
                    self._begun[name] = self._pool.submit(self._run, name, 1)
                    self._begun[name].add_done_callback(self._go_on)

    def hand_over(self) -> None:
        """Begin nothing more: what has not begun is left to who takes it."""
        with self._lock:
            self._over = True
            for name, each in [*self._begun.items()]:
                if each.cancel():
                    del self._begun[name]

    def bring_up_to_date(self, name: str, *, attempt: int) -> StageRun:
        """Bring a stage up to date, or wait for the head start that has begun it.

        Args:
            name: The stage; it is asked for after `hand_over`.
            attempt: Counts from 1. A stage is tried again here, whoever tried it first.

        Returns:
            Its record.

        Raises:
            StageFailed: It failed, here or before.

        """
        with self._lock:
            begun = None if name in self._taken else self._begun.get(name)
            self._taken.add(name)
        return begun.result() if begun is not None else self._run(name, attempt)

    def _run(self, name: str, attempt: int) -> StageRun:
        with self._lanes:
            return self._executor.bring_up_to_date(name, attempt=attempt)

    def _go_on(self, ended: "Future[StageRun]") -> None:
        if ended.cancelled() or ended.exception() is not None:
            # What a failure means for the others is for who takes over to decide.
            with self._lock:
                self._over = True
        else:
            self.begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let what has begun come to its end: it is recorded, and not done in vain."""
        self.hand_over()
        running = [name for name, each in self._begun.items() if not each.done()]
        if running and isinstance(error, Exception):
            print(f"note: {error}; first {', '.join(running)} ends", file=sys.stderr)
        wait(self._begun.values())
        self._pool.shutdown()


def _is_made(stage: "Future[StageRun] | None") -> bool:
    ended = stage is not None and stage.done() and not stage.cancelled()
    return ended and stage is not None and stage.exception() is None
