"""Run one stage in several processes under torch's elastic launcher, and say which one failed.

The processes ("ranks") connect to the stage's own process by a socket: it hands each its
assignment, passes on what rank 0 reports, and as long as it lives, they do.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
import uuid
from collections.abc import Iterable, Mapping
from multiprocessing import connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posttrain.pipeline.determinism import library_environment
from posttrain.pipeline.execution.assignment import Assignment, Channel, rank_log
from posttrain.pipeline.execution.failures import killed_by
from posttrain.pipeline.execution.sandboxes import hand_on_door
from posttrain.provenance.code.seen import Signature

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

_LAST_WORDS = frozenset({"done", "dismissed", "refused", "failed"})
_OF_NONE: Signature = (0, 0, 0)
_TAIL_LINES = 3
_TAIL_CHARACTERS = 400
_JOIN_SECONDS = 5.0


def threads_of_rank(assignment: Assignment) -> int:
    """The stage's threads, shared out among its processes."""
    return max(1, assignment.threads // assignment.processes)


def run_ranks(assignment: Assignment, channel: Channel) -> Mapping[str, Any]:
    """Run the task in all ranks; returns the final event: done, with metrics, or how it failed."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    desk = _Desk(assignment, channel)
    failures: Mapping[int, ProcessFailure] = {}
    with connection.Listener(family="AF_UNIX", backlog=assignment.processes) as listener:
        desk.open(listener)
        try:
            _launch(assignment, str(listener.address))
        except ChildFailedError as error:
            failures = error.failures
    desk.close()
    if failures or desk.finals.get(0, {}).get("kind") != "done":
        return _cause(assignment, desk.finals, failures)
    everyone = [final.get("imported", {}) for final in desk.finals.values()]
    return {**desk.finals[0], "imported": _imported(everyone)}


def _imported(ranks: Iterable[Mapping[str, Signature]]) -> dict[str, Signature]:
    """The versions of files that all ranks imported; of one that differed, a version of none."""
    found: dict[str, Signature] = {}
    for loaded in ranks:
        for file, version in loaded.items():
            if found.setdefault(file, version) != version:
                found[file] = _OF_NONE
    return found


class _Desk:
    """Talks to the ranks: one thread lets them in, and one listens to each."""

    def __init__(self, assignment: Assignment, channel: Channel) -> None:
        self.finals: dict[int, Mapping[str, Any]] = {}
        self._assignment = assignment
        self._channel = channel
        self._listening: list[threading.Thread] = []

    def open(self, listener: connection.Listener) -> None:
        """Let the ranks in from now on."""
        threading.Thread(target=self._admit, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Hear the last word of everyone who came; all have ended by now."""
        for thread in self._listening:
            thread.join(_JOIN_SECONDS)

    def _admit(self, listener: connection.Listener) -> None:
        for _ in range(self._assignment.processes):
            with contextlib.suppress(OSError, EOFError):  # it died, or all is over
                link = listener.accept()
                rank = int(link.recv())
                link.send(self._assignment)
                hand_on_door(link)
                thread = threading.Thread(target=self._listen, args=(rank, link), daemon=True)
                self._listening.append(thread)
                thread.start()

    def _listen(self, rank: int, link: connection.Connection) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                event = link.recv()
                if event["kind"] in _LAST_WORDS:
                    self.finals[rank] = event
                else:
                    self._channel.send(event)


def _launch(assignment: Assignment, address: str) -> None:
    """Start the ranks on this machine, as ``torchrun --standalone`` does, and wait for them."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # Who ended is told by us, in one sentence; its notes would be the end of the log.
    logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.CRITICAL)
    os.environ.update(library_environment(threads_of_rank(assignment), assignment.kernels))
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=assignment.processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        local_addr="127.0.0.1",
        # Starting again is the executor's business, which counts the attempts.
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=str(assignment.scratch / "ranks")),
        signals_to_handle="SIGTERM",
    )
    (assignment.scratch / "ranks").mkdir(parents=True, exist_ok=True)
    elastic_launch(config, sys.executable)("-m", "posttrain.pipeline.execution.rank", address)


def _cause(
    assignment: Assignment,
    finals: Mapping[int, Mapping[str, Any]],
    failures: "Mapping[int, ProcessFailure]",
) -> dict[str, Any]:
    """The first thing that went wrong: where one rank ends, the others complain soon after."""
    for _, final in sorted(finals.items()):
        if final["kind"] == "refused":
            return dict(final)
    killed = {r: -f.exitcode for r, f in failures.items() if r not in finals and f.exitcode < 0}
    # The launcher itself ends those that are left, by SIGTERM.
    for rank in sorted(killed, key=lambda rank: (killed[rank] == signal.SIGTERM, rank)):
        return _describe_failure("lost", assignment, rank, killed_by(killed[rank]))
    for rank, final in finals.items():
        if final["kind"] == "failed":
            return _describe_failure("failed", assignment, rank, f"failed with {final['error']}")
    rank = min(failures, default=0)
    return _describe_failure("lost", assignment, rank, "ended before it was done")


def _describe_failure(kind: str, assignment: Assignment, rank: int, what: str) -> dict[str, Any]:
    log = rank_log(assignment.log, rank)
    error = f"rank {rank} of {assignment.processes} {what}; {_tail(log)}"
    return {"kind": kind, "error": error}


def _tail(log: Path) -> str:
    """The end of a log, in one line."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "it wrote nothing"
    joined = " / ".join(lines[-_TAIL_LINES:])[-_TAIL_CHARACTERS:]
    return f"{log.name} ends: {joined}"
