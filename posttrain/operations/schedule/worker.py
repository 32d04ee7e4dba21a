"""The worker: Prefect's own process worker, which asks the notes before it starts what is due.

It may die at any instant. Its runs die with it; the notes know that they began, and the next
worker starts them again.
"""

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from posttrain.operations.schedule.admission import Begun, begin
from posttrain.operations.schedule.keeper import Keeper
from posttrain.operations.schedule.notes import open_notes
from posttrain.operations.schedule.outcome import end_group
from posttrain.operations.schedule.recipes import apply
from posttrain.operations.schedule.server import POOL, away, connect
from posttrain.stage.errors import first_line, sentence

# Together less than `posttrain down` waits: for runs that end by themselves, runs that are killed,
# what Prefect has begun, and threads.
_GENTLE_SECONDS, _KILL_SECONDS, _SERVE_SECONDS, _THREAD_SECONDS = 15.0, 5.0, 5.0, 3.0
_BEAT_SECONDS = 30.0
# Longer than Prefect's client tries a request again at a server that accepts and never answers.
_POLL_SECONDS = 900.0


class AskingNotes:
    """What is ours in the worker; `work` puts it before Prefect's own process worker."""

    keeper: Keeper
    stopping = False
    _polled = float("-inf")

    async def get_and_submit_flow_runs(self) -> list[Any]:
        """Poll once; a server or a database that is away is asked again, and ends no worker."""
        try:
            found = [] if self.stopping else await super().get_and_submit_flow_runs()  # type: ignore[misc]
            return list(found)
        except away() as error:
            self.keeper.say(f"trying again: {sentence(error)}")
            return []
        finally:
            self._polled = time.monotonic()
            self._beat()

    async def beat_while_polling(self) -> None:
        """Show that the worker lives while a poll waits, as a server that is away ends no run."""
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            if time.monotonic() - self._polled < _POLL_SECONDS:
                self._beat()

    def _beat(self) -> None:
        with suppress(OSError):
            self.keeper.beat()

    async def _sync_and_initialize(self) -> None:
        try:
            await super()._sync_and_initialize()  # type: ignore[misc]
        except away() as error:
            self.keeper.say(f"Prefect does not answer: {first_line(error)}")

    async def _get_scheduled_flow_runs(self) -> list[Any]:
        found = await super()._get_scheduled_flow_runs()  # type: ignore[misc]
        due = {entry.flow_run.id: entry for entry in found}
        runs = [each.flow_run for each in found]
        chosen = await asyncio.to_thread(self.keeper.cycle, runs)
        return [due[run.id] for run in chosen]

    async def _submit_run(self, flow_run: Any) -> None:
        try:
            await super()._submit_run(flow_run)  # type: ignore[misc]
        except away() as error:
            self.keeper.say(f"{flow_run.name}: trying again: {first_line(error)}")
            self._submitting_flow_run_ids.discard(flow_run.id)  # type: ignore[attr-defined]
            self._release_limit_slot(flow_run.id)  # type: ignore[attr-defined]

    async def run(self, flow_run: Any, configuration: Any, task_status: Any = None) -> Any:
        """Run what is due in a process of its own, or end it where nothing is to be done."""
        from prefect.workers.process import ProcessWorkerResult

        if flow_run.parameters.get("schedule") is None:
            return await super().run(flow_run, configuration, task_status)  # type: ignore[misc]
        process, begun = None, None
        self.keeper.busy.add(str(flow_run.id))
        try:
            begun = await asyncio.to_thread(begin, self.keeper, flow_run)
            if begun is not None:
                process = await self._start(begun, configuration.env)
                self.keeper.children[str(flow_run.id)] = process.pid
            task_status.started(process.pid if process is not None else os.getpid())
            if process is not None:
                await process.wait()
        finally:
            await asyncio.to_thread(self.keeper.ended, flow_run, begun, stopping=self.stopping)
        # How it ended is in the notes: what Prefect says follows them.
        return ProcessWorkerResult(status_code=0, identifier="decided")

    async def _start(self, begun: Begun, given: Mapping[str, str | None]) -> Any:
        known = {name: text for name, text in given.items() if text is not None}
        with begun.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-m", "posttrain.operations.schedule.flow",
                cwd=begun.place, env={**known, **begun.environment}, start_new_session=True,
                stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    async def end_runs(self) -> None:
        """End the runs; the notes still have them, and the next worker lets them go on."""
        self.stopping = True
        for gently, seconds in ((True, _GENTLE_SECONDS), (False, _KILL_SECONDS)):
            for pid in list(self.keeper.children.values()):
                end_group(pid, gently=gently)
            deadline = time.monotonic() + seconds
            while self.keeper.busy and time.monotonic() < deadline:
                await asyncio.sleep(0.1)


def work(root: Path, limit: int) -> None:
    """Work for the project at `root` until SIGTERM or SIGINT."""
    from prefect.workers.process import ProcessWorker

    # kill -USR1: where each thread stands, in the log.
    faulthandler.register(signal.SIGUSR1)
    said, wrong = apply(root)
    for line in [*said, *wrong]:
        say(line)
    made = type("ScheduleWorker", (AskingNotes, ProcessWorker), {"type": "posttrain"})
    with open_notes(root) as notes, connect() as server:
        worker = made(
            work_pool_name=POOL, name=f"posttrain {os.uname().nodename}", limit=limit,
            prefetch_seconds=0, create_pool_if_not_found=False,
        )  # fmt: skip
        worker.type = "process"
        worker.keeper = Keeper(root, notes, server, say)
        with suppress(*away()):
            server.require_pool()
        asyncio.run(_serve(worker))


async def _serve(worker: Any) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    serving = asyncio.create_task(worker.start(printer=say))
    waiting = asyncio.create_task(stopping.wait())
    beating = asyncio.create_task(worker.beat_while_polling())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    beating.cancel()
    if not serving.done():
        await worker.end_runs()
        serving.cancel()
        await asyncio.wait({serving}, timeout=_SERVE_SECONDS)
        last = threading.Timer(_THREAD_SECONDS, _leave)
        last.daemon = True
        last.start()
    elif (error := serving.exception()) is not None:
        raise error


def _leave() -> None:
    """End while a thread still asks a server that does not answer; the notes have what is open."""
    say("ended while Prefect or the notes were asked and did not answer")
    os._exit(0)


def say(*said: object) -> None:
    """A line of the log, with its time."""
    print(time.strftime("%Y-%m-%d %H:%M:%S"), *said, flush=True)
