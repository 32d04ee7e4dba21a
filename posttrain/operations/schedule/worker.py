"""The worker: takes due flow runs from Prefect, lets the journal decide, runs each in a process.

It may die at any instant. A run goes on without it in a session of its own; the next worker finds
it by the process that the journal names, and starts again only what has no process any more.
"""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from posttrain.operations.schedule.admit import admit
from posttrain.operations.schedule.heartbeat import Watch
from posttrain.operations.schedule.journal import Journal, Tick, journal_location, open_journal
from posttrain.operations.schedule.reconcile import reconcile, sync
from posttrain.operations.schedule.running import end_runs, kill_hung, sweep, terminate
from posttrain.operations.schedule.server import OUTCOMES, FlowRun, Server, away, connect
from posttrain.operations.schedule.spawn import environment, workspace
from posttrain.stage.errors import UserError

POLL_SECONDS = 1.0
RECONCILE_SECONDS = 5.0


@dataclass
class ScheduleWorker:
    """One worker of one project. `limit` runs at once; with 0 other workers run what is due."""

    root: Path
    journal: Journal
    server: Server
    pool: str
    limit: int
    children: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    log: Callable[[str], None] = print
    watch: Watch = field(init=False)
    _reconciled: float = float("-inf")

    def __post_init__(self) -> None:
        self.watch = Watch(self.root)

    def cycle(self) -> None:
        """Everything that is due now, once."""
        self._reap()
        if time.monotonic() - self._reconciled > RECONCILE_SECONDS:
            self.server.require_pool()
            if self.limit:
                self.server.heartbeat(f"posttrain on {socket.gethostname()}", RECONCILE_SECONDS)
            for tick in kill_hung(self.journal, self.watch):
                self.log(f"{tick.id}: {tick.status}: {tick.reason}")
            sync(self.journal, self.server, self.pool, self.root)
            stop = reconcile(
                self.journal, self.server, self.root, ours=self.children, others=not self.limit
            )
            for tick in stop:
                terminate(tick)
            self._reconciled = time.monotonic()
        if self.limit:
            self._start_due()

    def _start_due(self) -> None:
        busy: set[str] = set()
        for run in sorted(self.server.due(), key=lambda run: run.due):
            # A queue is asked at its head; what has its row already cannot be missed.
            if run.schedule in busy and self.journal.of_flow_run(run.id) is not None:
                continue
            if self._consider(run) == "wait":
                busy.add(run.schedule)

    def stop(self) -> None:
        """End the runs; the journal still has them, and the next worker lets them go on."""
        for tick in end_runs(self.journal, self.children):
            self.log(f"{tick.id}: {tick.status}: {tick.reason}")

    def _reap(self) -> None:
        for num, child in list(self.children.items()):
            if child.poll() is not None:
                sweep(child.pid)
                del self.children[num]
                self._reconciled = float("-inf")

    def _consider(self, run: FlowRun) -> str:
        try:
            schedule = self.journal.schedule(run.schedule)
        except UserError as error:
            self.server.state(run.id, "CANCELLED", str(error), name="Skipped")
            return "over"
        room = len(self.children) < self.limit
        answer = admit(
            self.journal, schedule, run.due, flow_run_id=run.id, root=self.root, room=room
        )
        tick = answer.tick
        if answer.answer == "run":
            self.log(f"{tick.id}: attempt {tick.attempt}")
            self._start(tick, run)
        elif answer.answer == "over" and tick.settled:
            self.log(f"{tick.id}: {tick.status}: {tick.reason}")
            self._close(tick, run)
        return answer.answer

    def _close(self, tick: Tick, run: FlowRun) -> None:
        """Let Prefect say what the journal says; a second flow run of one tick is put aside."""
        if tick.flow_run_id not in (None, run.id):
            self.server.put_aside(run.id, tick)
        elif tick.status in OUTCOMES:
            self.server.close(run.id, tick)

    def _start(self, tick: Tick, run: FlowRun) -> None:
        try:
            place = workspace(self.root, self.journal, tick)
        except (UserError, OSError) as error:
            values = {"status": "failed", "reason": str(error), "settled": False}
            self.journal.change(tick, {**values, "ended": time.time()})
            return
        if not self.server.pending(run.id):
            self.log(f"{tick.id}: Prefect does not let flow run {run.id} start")
            return
        self.children[tick.num] = _spawn(self, tick, run, place.root)


def work(root: Path, pool: str, limit: int, stopping: threading.Event) -> None:
    """Work until `stopping` is set; servers that are away are waited for."""
    from posttrain.pipeline.execution.prefect import configure

    configure(root / ".posttrain")
    with open_journal(journal_location(root)) as journal, connect(pool) as server:
        worker = ScheduleWorker(root, journal, server, pool, limit, log=say)
        tend(worker, stopping)
        if limit:
            worker.stop()


def tend(worker: ScheduleWorker, stopping: threading.Event) -> None:
    """Do what is due again and again; what does not answer is asked again."""
    troubles: tuple[type[Exception], ...] = (SQLAlchemyError, *away())
    beat = worker.root / ".posttrain" / "services" / "worker.beat"
    beat.parent.mkdir(parents=True, exist_ok=True)
    while not stopping.is_set():
        try:
            worker.cycle()
            beat.touch()
        except troubles as error:
            said = (str(error) or "?").splitlines()[0]
            worker.log(f"trying again: {type(error).__name__}: {said}")
        stopping.wait(POLL_SECONDS)


def _spawn(
    worker: ScheduleWorker, tick: Tick, run: FlowRun, project: Path
) -> subprocess.Popen[bytes]:
    logs = worker.root / ".posttrain" / "services" / "runs"
    logs.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(tick.due))
    with (logs / f"{tick.schedule}-{stamp}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "prefect.engine", run.id],
            cwd=project,
            env=environment(worker.root, worker.journal, tick, project),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def say(line: str) -> None:
    """A line of the log, with its time."""
    print(time.strftime("%Y-%m-%d %H:%M:%S"), line, flush=True)
