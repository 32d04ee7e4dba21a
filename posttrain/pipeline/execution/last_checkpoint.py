"""A checkpoint on request: what a stage that is asked to end does with the time it is given.

How often checkpoints are written changes no byte of any result, and `checkpoint_every` is in no
key. So a stage's process may be given a number there that becomes 1 once it is asked to end: the
next step that is over has its checkpoint, in every task that has such a field.
"""

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType

from posttrain.pipeline.execution.assignment import Assignment, Channel

FIELD = "checkpoint_every"
_POLL_SECONDS = 0.02
# Longer than anybody waits for a process that was asked to end.
_LONGEST_SECONDS = 600.0


class CheckpointInterval(int):
    """Steps between checkpoints: a whole number that divides as 1 does once that is asked for.

    >>> every = CheckpointInterval(100)
    >>> 7 % every, 7 // every
    (7, 0)
    >>> every.shorten()
    >>> 7 % every, 7 // every
    (0, 7)
    """

    _now: int

    def __new__(cls, steps: int) -> "CheckpointInterval":
        """Take the steps that are stated."""
        made = super().__new__(cls, steps)
        made._now = int(steps)
        return made

    def shorten(self) -> None:
        """Have a checkpoint after every step from now on."""
        self._now = 1

    def __rmod__(self, other: int) -> int:
        """Give the remainder of a number of steps."""
        return other % self._now

    def __rfloordiv__(self, other: int) -> int:
        """Give how often it has gone by in a number of steps."""
        return other // self._now


def can_save(assignment: Assignment) -> bool:
    """Say whether a stage can be asked for a checkpoint.

    Several processes of one stage would have to agree on the step, so theirs are the planned ones.

    Args:
        assignment: What the stage is given.

    """
    return assignment.processes == 1 and getattr(assignment.config, FIELD, 0) > 0


def saving_on_request(assignment: Assignment, channel: Channel) -> Assignment:
    """Let SIGTERM ask this process for a checkpoint, after which it ends.

    Args:
        assignment: What the stage is given.
        channel: Is told that the checkpoint is there.

    Returns:
        The same, where it can save with an interval that is shortened on request.

    """
    if not can_save(assignment):
        return assignment
    every = CheckpointInterval(getattr(assignment.config, FIELD))
    folder = assignment.scratch / "checkpoints"

    def asked(_number: int, _frame: FrameType | None) -> None:
        every.shorten()
        threading.Thread(target=_end_once_saved, args=(folder, channel), daemon=True).start()

    signal.signal(signal.SIGTERM, asked)
    return replace(assignment, config=assignment.config.model_copy(update={FIELD: every}))


def _end_once_saved(folder: Path, channel: Channel) -> None:
    """End this process at the next whole checkpoint: its last word says which one that is."""
    before, until = _whole(folder), time.monotonic() + _LONGEST_SECONDS
    while not (new := _whole(folder) - before) and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    if new:
        channel.send({"kind": "saved", "saved": max(new)})
    os._exit(128 + signal.SIGTERM)


def _whole(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("step-*")}
