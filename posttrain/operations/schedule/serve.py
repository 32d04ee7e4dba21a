"""The schedules of a project as served deployments: no work pool, one process that starts the runs.

Prefect's own runner starts what is due, each run asks the journal, and the runs are looked after
here as under our worker: missed ones, retries, notices, runs that hang.
"""

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from posttrain.operations.schedule import flow
from posttrain.operations.schedule.deployments import ENTRYPOINT, description, tags
from posttrain.operations.schedule.journal import journal_location, open_journal
from posttrain.operations.schedule.running import end_runs
from posttrain.operations.schedule.schedule import CronSchedule
from posttrain.operations.schedule.server import Server, away, connect
from posttrain.operations.schedule.worker import ScheduleWorker, say, tend

SERVED = "served"
_POLL_SECONDS = 2.0
_DEPLOY_SECONDS = 60.0


class Served(Server):
    """A server that gets its deployments from the runner which serves them."""

    def __init__(self, client: Any, runner: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(client, SERVED)
        self._runner = runner
        self._loop = loop
        self._names: set[str] = set()

    def require_pool(self) -> None:
        """There is none."""

    def deploy(self, schedule: CronSchedule, root: str) -> None:
        """Make or change a deployment, and let the runner ask for its runs from now on."""
        from prefect.client.schemas.schedules import CronSchedule

        made = flow.scheduled.to_deployment(
            name=schedule.name,
            schedules=[CronSchedule(cron=schedule.cron, timezone=schedule.timezone)],
            parameters={"schedule": schedule.name},
            paused=schedule.paused,
            description=description(schedule),
            tags=tags(schedule),
            enforce_parameter_schema=False,
        )
        made.entrypoint = ENTRYPOINT
        told = asyncio.run_coroutine_threadsafe(self._runner.aadd_deployment(made), self._loop)
        told.result(_DEPLOY_SECONDS)
        self._names.add(schedule.name)
        self.set_alarm(schedule)

    def paused(self, names: Sequence[str]) -> dict[str, bool]:
        """Of deployments that this process serves: another one's must be taken over first."""
        return super().paused([name for name in names if name in self._names])


def serve(root: Path, limit: int) -> None:
    """Serve until a signal ends it; runs that are under way then go on at the next start."""
    from posttrain.pipeline.execution.prefect import configure

    configure(root / ".posttrain")
    os.environ[flow.PROJECT] = str(root)
    asyncio.run(_serve(root, limit))


async def _serve(root: Path, limit: int) -> None:
    from prefect.runner import Runner

    runner = Runner(
        name="posttrain", limit=limit, query_seconds=_POLL_SECONDS, pause_on_shutdown=False
    )
    loop, stopping = asyncio.get_running_loop(), threading.Event()
    with open_journal(journal_location(root)) as journal, connect(SERVED) as server:
        served = Served(server.client, runner, loop)
        worker = ScheduleWorker(root, journal, served, SERVED, limit=0, log=say)
        tending = loop.run_in_executor(None, tend, worker, stopping)
        try:
            await runner.start()
        finally:
            stopping.set()
            await tending
            for tick in await loop.run_in_executor(None, end_runs, journal, {}):
                say(f"{tick.id}: {tick.status}: {tick.reason}")
                with suppress(*away()):
                    served.again(str(tick.flow_run_id), time.time(), tick.reason, name="Scheduled")
