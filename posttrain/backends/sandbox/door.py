"""Run programs from wherever one is: through a stage's door, or in sandboxes of this process."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from posttrain.backends.sandbox import keeper
from posttrain.backends.sandbox.pool import SandboxPool
from posttrain.backends.sandbox.program import Program, ProgramEnd
from posttrain.stage.errors import UserError
from posttrain.stage.needs import SANDBOX


@dataclass
class _Door:
    """What this process has: in a stage that is held, a socket or nothing."""

    held: bool = False
    link: socket.socket | None = None


_here = _Door()


def enter_stage(descriptor: int | None) -> None:
    """Make this process one of a stage, for good.

    Args:
        descriptor: The stage's door, which is this process's own from now on; None where its
            parameters ask for none.

    """
    _here.held = True
    _here.link = None if descriptor is None else socket.socket(fileno=descriptor)


def door_descriptor() -> int | None:
    """Return the descriptor of the stage's door, to be sent to a process that works for it."""
    return None if _here.link is None else _here.link.fileno()


def run_programs(programs: Sequence[Program]) -> list[ProgramEnd]:
    """Run programs, each in a sandbox of its own, a few at a time.

    Args:
        programs: What to run.

    Returns:
        How each ended, in their order.

    Raises:
        UserError: There can be no sandbox here; or the stage has not declared that it needs one.

    """
    if not programs:
        return []
    if not _here.held:
        with SandboxPool(ahead=0) as pool:
            return pool.run_all(programs)
    headers, blobs = [], []
    for program in programs:
        header, texts = program.told()
        headers.append(header)
        blobs += texts
    answer, outputs = _ask({"programs": headers}, blobs)
    streams = iter(outputs)
    return [
        ProgramEnd(**told, stdout=next(streams), stderr=next(streams)) for told in answer["ends"]
    ]


def versions_behind_the_door() -> str:
    """Name the programs, with versions, that decide what this stage's sandboxed programs do."""
    return str(_ask({"versions": True}, [])[0]["versions"])


def _ask(header: dict[str, object], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    if _here.link is None:
        raise UserError(
            "this stage runs programs in the sandbox, and nothing in its parameters says so; put"
            f" '{SANDBOX}' into NEEDS of the verifier, or into what `reaches` of its config returns"
        )
    ours, theirs = socket.socketpair()
    with ours:
        answer = None
        with theirs:
            socket.send_fds(_here.link, [b"?"], [theirs.fileno()])
        with suppress(ConnectionError):
            keeper.send(ours, header, blobs)
            answer = keeper.receive(ours)
    if answer is None:
        raise ConnectionError("the process that runs the stage's sandboxes is gone")
    if "refused" in answer[0]:
        raise UserError(str(answer[0]["refused"]))
    return answer
