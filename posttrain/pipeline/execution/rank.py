"""One of the processes that share a stage: started by torch's launcher, led by the stage's own."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from multiprocessing import connection

from posttrain.pipeline.execution import imported
from posttrain.pipeline.execution.assignment import Assignment, Channel, rank_log
from posttrain.pipeline.execution.call import perform, set_up
from posttrain.pipeline.execution.child import concluded, emitter, logged, only_keyed
from posttrain.pipeline.execution.ranks import threads_of_rank
from posttrain.pipeline.execution.sandboxes import receive_door
from posttrain.pipeline.hermetic.process import listen

_GRACE_SECONDS = 1.0


def main() -> None:
    """Ask for the assignment, run it, say how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rank = int(os.environ["RANK"])
    link = connection.Client(sys.argv[1], family="AF_UNIX")
    link.send(rank)
    assignment: Assignment = link.recv()
    receive_door(assignment, link)
    threading.Thread(target=_die_with, args=(link,), daemon=True).start()
    channel = Channel(link)
    with logged(rank_log(assignment.log, rank)) if rank else contextlib.nullcontext():
        # What this process may reach it has from the one that started it.
        final = concluded(
            assignment,
            lambda: _perform(_own(assignment, rank), rank, channel),
            lambda: listen(assignment.view) if assignment.view is not None else None,
        )
        sys.stdout.flush()
        sys.stderr.flush()
    channel.send(final)
    failed = final["kind"] not in ("done", "dismissed")
    if rank and failed:
        # The first to end ends the others: what all of them found, rank 0 is to tell.
        time.sleep(_GRACE_SECONDS)
    # What a peer's death has broken inside a library must not keep this process from ending.
    os._exit(int(failed))


def _perform(assignment: Assignment, rank: int, channel: Channel) -> dict[str, object]:
    set_up(assignment)
    from posttrain.learning.models.distributed.group import Dismissed, close_group, open_group

    for _, name in socket.if_nameindex():
        if name.startswith("lo"):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    open_group(assignment.device)
    final: dict[str, object]
    try:
        with only_keyed(assignment):
            metrics = perform(assignment, emitter(channel if rank == 0 else None))
        final = {"kind": "done", "metrics": metrics, "imported": imported.first_party()}
    except Dismissed:
        final = {"kind": "dismissed", "imported": imported.first_party()}
    close_group()
    return final


def _own(assignment: Assignment, rank: int) -> Assignment:
    """What this rank works with: its share of the threads, its device, and a place of its own."""
    own = replace(
        assignment,
        threads=threads_of_rank(assignment),
        device=f"cuda:{rank}" if assignment.device == "cuda" else assignment.device,
    )
    if rank == 0:
        return own
    scratch = assignment.scratch / "ranks" / f"scratch-{rank}"
    scratch.mkdir(parents=True, exist_ok=True)
    outputs = {name: scratch / path.name for name, path in assignment.outputs.items()}
    return replace(own, scratch=scratch, outputs=outputs)


def _die_with(link: connection.Connection) -> None:
    """End with the stage's process: nothing more comes from it but its end."""
    connection.wait([link])
    os._exit(1)


if __name__ == "__main__":
    main()
