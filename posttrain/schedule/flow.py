"""The Prefect flow of every scheduled run; deployments name it `posttrain.schedule.flow.scheduled`.

The attribute is made when it is asked for, so that importing this module does not import Prefect.
"""

import os
import time
from pathlib import Path
from typing import Any

from posttrain.pipeline.ledger.location import project_root
from posttrain.schedule.admit import admit
from posttrain.schedule.deployments import tags as tags_of
from posttrain.schedule.execute import execute, take
from posttrain.schedule.journal import Journal, Tick, journal_location, open_journal
from posttrain.schedule.schedule import Schedule
from posttrain.schedule.worktree import prepare, shared

FLOW_NAME = "posttrain"
TICK = "POSTTRAIN_TICK"
_AGAIN_SECONDS = 5.0


def __getattr__(name: str) -> Any:
    if name != "scheduled":
        raise AttributeError(name)
    from prefect import flow

    return flow(name=FLOW_NAME, persist_result=False, validate_parameters=False)(scheduled_run)


def scheduled_run(schedule: str) -> None:
    """Run what is due of `schedule`: in the worktree and for the tick that the worker chose.

    Under a worker that is not ours there is neither, and the tick is admitted here.
    """
    from prefect import tags
    from prefect.exceptions import Abort

    here = Path.cwd()
    with open_journal(journal_location(project_root(here))) as journal:
        declared = journal.schedule(schedule)
        # The run of the recipe itself is a flow run below this one: to be found by the same tags.
        found_by = tags(*tags_of(declared))
        given = os.environ.pop(TICK, None)
        if given is not None:
            tick = take(journal, journal.tick(int(given)))
            if tick is None:
                raise Abort("another process has this tick")
            with found_by:
                execute(journal, declared, tick, here)
            return
        found = _admitted(journal, declared, here)
        if found is not None:
            os.environ.update(shared(here))
            with found_by:
                execute(journal, declared, found, prepare(here, schedule).root)


def _admitted(journal: Journal, schedule: Schedule, root: Path) -> Tick | None:
    from prefect.runtime import flow_run

    due = flow_run.scheduled_start_time.timestamp()
    while True:
        admission = admit(journal, schedule, due, flow_run_id=str(flow_run.id), root=root)
        if admission.answer == "run":
            return admission.tick
        if admission.answer == "over":
            return None
        time.sleep(_AGAIN_SECONDS)
