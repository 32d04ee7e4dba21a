"""The process of one attempt: Prefect's engine around the recipe, in the worktree of its commit.

`python -m` this module is what the worker starts; deployments name `scheduled` in it. That
attribute is made when it is asked for, so that the lock is held before Prefect is imported.
"""

import ctypes
import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_LOCK_SECONDS = 60.0


def __getattr__(name: str) -> Any:
    if name != "scheduled":
        raise AttributeError(name)
    from prefect import flow

    from posttrain.operations.schedule.server import FLOW_NAME

    made = flow(name=FLOW_NAME, persist_result=False, validate_parameters=False)
    return made(_scheduled)


def _scheduled(schedule: str) -> str:
    """Run the recipe to its end; what becomes of it is in the notes."""
    from prefect import tags

    from posttrain.operations.schedule.admission import TICK
    from posttrain.operations.schedule.execute import execute

    given = os.environ.pop(TICK, None)
    if given is None:
        raise RuntimeError(f"{schedule}: its runs are started by `posttrain worker`, in a worktree")
    values = json.loads(given)
    title = json.loads(values["schedule"])["title"]
    with tags(f"recipe:{title}", f"schedule:{schedule}"):
        return execute(values, Path.cwd())


def main() -> None:
    """Hold the schedule's lock, note that the attempt begins, and become Prefect's engine."""
    given = json.loads(os.environ["POSTTRAIN_TICK"])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != given["worker"]:
        sys.exit("the worker is gone; the next one starts this again")
    from posttrain.operations.schedule.execute import claim
    from posttrain.operations.schedule.outcome import run_lock

    name = json.loads(given["schedule"])["name"]
    with run_lock(Path(given["root"]), name).acquire(timeout=_LOCK_SECONDS):
        if claim(given):
            runpy.run_module("prefect.engine", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
