"""The Prefect flow of every scheduled run; deployments name it by its module and `scheduled`.

The attribute is made when it is asked for, so that importing this module does not import Prefect.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from posttrain.operations.schedule.admit import admit
from posttrain.operations.schedule.deployments import FLOW_NAME
from posttrain.operations.schedule.deployments import tags as tags_of
from posttrain.operations.schedule.execute import TickFailed, execute, take
from posttrain.operations.schedule.heartbeat import sending_heartbeats
from posttrain.operations.schedule.journal import Journal, Tick, journal_location, open_journal
from posttrain.operations.schedule.spawn import TICK, environment, workspace
from posttrain.provenance.ledger.location import project_root
from posttrain.stage.errors import UserError

PROJECT = "POSTTRAIN_PROJECT"
_AGAIN_SECONDS = 20.0


def __getattr__(name: str) -> Any:
    if name != "scheduled":
        raise AttributeError(name)
    from prefect import flow

    return flow(name=FLOW_NAME, persist_result=False, validate_parameters=False)(scheduled_run)


def scheduled_run(schedule: str) -> None:
    """Run what is due of `schedule`: in the worktree and for the tick that the worker chose.

    Under a worker that is not ours there is neither: the tick is admitted here, and gets a process.
    """
    from prefect import tags
    from prefect.exceptions import Abort

    given = os.environ.pop(TICK, None)
    here = Path.cwd()
    root = project_root(Path(os.environ.get(PROJECT) or here) if given is None else here)
    with open_journal(journal_location(root)) as journal:
        declared = journal.schedule(schedule)
        if given is None:
            if (found := _admitted(journal, schedule, root)) is not None:
                _in_a_process(journal, found, root)
            return
        tick = take(journal, journal.tick(int(given)))
        if tick is None:
            raise Abort("another process has this tick")
        # The run of the recipe itself is a flow run below this one: to be found by the same tags.
        with sending_heartbeats(), tags(*tags_of(declared)):
            execute(journal, declared, tick, here)


def _admitted(journal: Journal, name: str, root: Path) -> Tick | None:
    """The tick of this flow run, if it may run now; one that has to wait is laid out for later."""
    from prefect.exceptions import Abort
    from prefect.runtime import flow_run

    from posttrain.operations.schedule.server import OUTCOMES, connect

    declared, run_id = journal.schedule(name), str(flow_run.id)
    due = flow_run.scheduled_start_time.timestamp()
    admission = admit(journal, declared, due, flow_run_id=run_id, root=root)
    tick = admission.tick
    if admission.answer == "run":
        return tick
    with connect(declared.work_pool) as server:
        if admission.answer == "wait":
            later = time.time() + _AGAIN_SECONDS
            server.again(run_id, later, tick.reason, name="AwaitingTurn")
        elif tick.flow_run_id not in (None, run_id):
            server.put_aside(run_id, tick)
        elif tick.settled and tick.status in OUTCOMES:
            server.close(run_id, tick)
    raise Abort(tick.reason)


def _in_a_process(journal: Journal, tick: Tick, root: Path) -> None:
    """Run a tick with the code of its own commit, whatever this process has imported."""
    try:
        place = workspace(root, journal, tick).root
    except (UserError, OSError) as error:
        values = {"status": "failed", "reason": str(error), "settled": False, "ended": time.time()}
        journal.change(tick, values)
        raise TickFailed(str(error)) from None
    subprocess.run(
        [sys.executable, "-m", __name__],
        cwd=place,
        env=environment(root, journal, tick, place),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )
    ended = journal.tick(tick.num)
    if ended.status in ("failed", "crashed", "running"):
        raise TickFailed(ended.reason)


def _main() -> None:
    """The process that `_in_a_process` starts; it ends with the one that waits for it."""
    from posttrain.pipeline.execution.prefect import configure

    here = Path.cwd()
    configure(here / ".posttrain")
    with open_journal(journal_location(here)) as journal, sending_heartbeats(parent=os.getppid()):
        tick = take(journal, journal.tick(int(os.environ.pop(TICK))))
        if tick is None:
            return
        from prefect import tags

        declared = journal.schedule(tick.schedule)
        with tags(*tags_of(declared)):
            execute(journal, declared, tick, here)


if __name__ == "__main__":
    _main()
