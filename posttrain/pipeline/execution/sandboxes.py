"""The process that runs sandboxes for a stage: started beside its attempt, and ended with it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, reduction

from posttrain.backends.sandbox.door import (
    door_descriptor,
    enter_stage,
    versions_behind_the_door,
)
from posttrain.pipeline.execution.assignment import Assignment
from posttrain.pipeline.hermetic.process import isolation
from posttrain.provenance.circumstances import circumstances_here
from posttrain.stage.needs import SANDBOX

_BROKER = "posttrain.backends.sandbox.broker"


@contextmanager
def sandboxes_of(assignment: Assignment, door: connection.Connection) -> Iterator[None]:
    """Serve a stage's programs while its attempt runs, where its parameters ask for that.

    Args:
        assignment: What the stage is given.
        door: The executor's end of the stage's door; it is closed here.

    """
    if not _asks(assignment):
        door.close()
        yield
        return
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ.get("PATH", "")}
    assignment.log.parent.mkdir(parents=True, exist_ok=True)
    with assignment.log.open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", _BROKER, str(door.fileno()), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            pass_fds=[door.fileno()],
            env=environment,
        )
    door.close()
    try:
        yield
    finally:
        process.kill()
        process.wait()


def take_door(assignment: Assignment, door: connection.Connection) -> None:
    """Let this process of a stage ask through its door, or tell it that it has none.

    Args:
        assignment: What the stage is given.
        door: The stage's end.

    """
    enter_stage(os.dup(door.fileno()) if _asks(assignment) else None)
    door.close()


def hand_on_door(link: connection.Connection) -> None:
    """Send the door of this stage to another of its processes, where there is one.

    Args:
        link: A socket to that process.

    """
    descriptor = door_descriptor()
    if descriptor is not None:
        reduction.send_handle(link, descriptor, None)


def receive_door(assignment: Assignment, link: connection.Connection) -> None:
    """Take what `hand_on_door` sent.

    Args:
        assignment: What the stage is given.
        link: The other end of its socket.

    """
    enter_stage(reduction.recv_handle(link) if _asks(assignment) else None)


def circumstances_of(assignment: Assignment) -> dict[str, str]:
    """What decides the bytes of a stage beside its key, as this process of it finds it.

    Args:
        assignment: What the stage is given.

    Returns:
        Value by name: what it computes with, how it is kept to its key, and the versions of what
        runs its sandboxed programs, where it has a door, and of the browser that shows its pages.

    """
    found = circumstances_here(assignment.device, loaded=True)
    if assignment.view is not None:
        found["isolation"] = isolation(held=assignment.view.held)
    if door_descriptor() is not None:
        found[SANDBOX] = versions_behind_the_door()
    # Asked where it was imported alone: most stages open no page.
    pages = sys.modules.get("posttrain.backends.browser.pages")
    if pages is not None and (browser := pages.browsers_seen()):
        found["browser"] = browser
    return found


def _asks(assignment: Assignment) -> bool:
    return assignment.view is not None and SANDBOX in assignment.view.reach
