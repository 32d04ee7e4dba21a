"""The inside of a stage's process: set up, run the task, verify its outputs, report."""

import contextlib
import errno
import fcntl
import importlib
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import connection, parent_process
from pathlib import Path

from posttrain.pipeline.execution import imported
from posttrain.pipeline.execution.assignment import Assignment, Channel, Order
from posttrain.pipeline.execution.gpus import used
from posttrain.pipeline.execution.last_checkpoint import saving_on_request
from posttrain.pipeline.execution.late_setup import perform, set_up_as_needed
from posttrain.pipeline.execution.parts import checked_rows, parts_of
from posttrain.pipeline.execution.sandboxes import circumstances_of, take_door
from posttrain.pipeline.hermetic.guard import Guard
from posttrain.pipeline.hermetic.process import hold
from posttrain.pipeline.hermetic.refusal import explain, explain_unread
from posttrain.stage.errors import UserError
from posttrain.stage.slots import plugged
from posttrain.stage.started import traced

HEARTBEAT_SECONDS = 1.0


def main(
    orders: connection.Connection, pipe: connection.Connection, door: connection.Connection
) -> None:
    """Wait for an assignment, run it, send exactly one final event: done, refused or failed."""
    # What reaches every process of the terminal is ignored: the executor decides what it means,
    # and ends this process by SIGTERM.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        order: Order = orders.recv()
    except EOFError:
        return  # nothing was left to do, or the executor is gone
    sys.path[:] = order.path
    os.chdir(order.folder)
    take_door(order.assignment, door)
    channel = Channel(pipe)
    _run(saving_on_request(order.assignment, channel), channel)


def _run(assignment: Assignment, channel: Channel) -> None:
    # Before anything is given up: Landlock holds the thread that asks for it and those that come
    # of it, so that these two stay free; they run no code of the stage.
    _start_watchers(channel)
    with logged(assignment.log), _exclusive(assignment.scratch), used(assignment.gpus):
        final = concluded(
            assignment, lambda: _perform(assignment, channel), lambda: _hold(assignment)
        )
        sys.stdout.flush()
        sys.stderr.flush()
        channel.send({**final, "cpu_seconds": _cpu_seconds()})


def _cpu_seconds() -> float:
    """Processor time of this process and of those that it started and waited for."""
    whom = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(each.ru_utime + each.ru_stime for each in map(resource.getrusage, whom))


def _hold(assignment: Assignment) -> Guard | None:
    """Hold this process to what the stage may reach; None where nothing says what that is."""
    view = assignment.view
    if view is None:
        return None
    for log in view.logs:
        log.touch()
    return hold(view)


def concluded(
    assignment: Assignment,
    perform: Callable[[], dict[str, object]],
    hold: Callable[[], Guard | None],
) -> dict[str, object]:
    """The final event of a performance, also where it raises or cannot be held to its view."""
    guard = None
    try:
        guard = hold()
        with plugged(assignment.plugins):
            final = perform()
        missed = explain_unread(guard) if guard is not None else None
        if missed is not None and final["kind"] == "done":
            return {"kind": "refused", "error": missed}
        return final
    except Exception as error:  # noqa: BLE001 - the boundary: it is logged whole and reported
        undeclared = explain(error, guard) if guard is not None else None
        if undeclared is None and isinstance(error, UserError):
            return {"kind": "refused", "error": str(error)}
        if undeclared is None and isinstance(error, OSError):
            return _os_failure(error, assignment)
        traceback.print_exc()
        if undeclared is not None:
            return {"kind": "refused", "error": undeclared}
        return _shortage(error, assignment) or {"kind": "failed", "error": traced(error)}


def _numbers(returned: object, stage: str) -> dict[str, float]:
    """Metrics as a stage returned them, or a sentence where it returned something else."""
    try:
        return {name: float(value) for name, value in dict(returned or {}).items()}  # type: ignore[call-overload]
    except (TypeError, ValueError):
        raise UserError(
            f"stage '{stage}' returns {repr(returned)[:60]}, and names with their numbers are"
            " needed; correct what its run returns"
        ) from None


def _perform(assignment: Assignment, channel: Channel) -> dict[str, object]:
    set_up_as_needed(assignment)
    _require_device(assignment)
    begun = started = time.perf_counter()
    loaded: Mapping[str, object] = {}
    if assignment.processes > 1:
        from posttrain.pipeline.execution.ranks import run_ranks

        final = run_ranks(assignment, channel)
        if final["kind"] != "done":
            return dict(final)
        metrics, loaded = final["metrics"], final["imported"]
    else:
        with only_keyed(assignment):
            importlib.import_module(assignment.entry.partition(":")[0])
            started = time.perf_counter()
            metrics = perform(assignment, emitter(channel))
    ran = time.perf_counter()
    where = f"stage '{assignment.stage}', output"
    rows = {
        name: checked_rows(path, assignment.types[name], f"{where} '{name}'")
        for name, path in assignment.outputs.items()
    }
    parts = {
        name: parts_of(path, assignment.types[name]) for name, path in assignment.outputs.items()
    }
    verified = time.perf_counter()
    return {
        "kind": "done",
        "metrics": _numbers(metrics, assignment.stage),
        "rows": rows,
        "parts": parts,
        "imported": {**imported.first_party(), **loaded},
        "circumstances": circumstances_of(assignment),
        "timings": {"import": started - begun, "run": ran - started, "verify": verified - ran},
        # What this process held at most.
        "num_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


@contextlib.contextmanager
def only_keyed(assignment: Assignment) -> Iterator[None]:
    """Refuse what is imported here and is not in the key: other versions would go unnoticed."""
    before = set(sys.modules)
    yield
    heads = {name.partition(".")[0] for name in sys.modules.keys() - before}
    if surplus := sorted(heads & assignment.unkeyed):
        raise UserError(
            f"stage '{assignment.stage}' imported {', '.join(surplus)}, which nothing in its"
            " parameters asks for, so its key does not know the version; name it in `PACKAGES` of"
            " the config that needs it"
        )


def _require_device(assignment: Assignment) -> None:
    if assignment.device != "cuda":
        return
    import torch

    if not torch.cuda.is_available():
        raise UserError(
            f"stage '{assignment.stage}': run.device is cuda, and torch sees no CUDA device here; "
            "set run.device to cpu, or run where there is one"
        )
    if torch.cuda.device_count() < assignment.processes:
        raise UserError(
            f"stage '{assignment.stage}': {assignment.processes} processes need a CUDA device each,"
            f" and there are {torch.cuda.device_count()}; lower resources.processes"
        )


def emitter(channel: Channel | None) -> Callable[[Mapping[str, object]], None]:
    """What a stage reports through: notes go to its log as well, and without a channel only so."""

    def emit(event: Mapping[str, object]) -> None:
        if event["kind"] == "note":
            print(event["line"], flush=True)
        if channel is not None:
            channel.send(event)

    return emit


def _os_failure(error: OSError, assignment: Assignment) -> dict[str, object]:
    if error.errno == errno.ENOSPC:
        place = assignment.log.parent
        return {
            "kind": "refused",
            "error": f"stage '{assignment.stage}': no space left on the disk of {place}; "
            "free some (nothing was published), then run again",
        }
    traceback.print_exc()
    return {"kind": "failed", "error": traced(error)}


def _shortage(error: Exception, assignment: Assignment) -> dict[str, object] | None:
    """Return a refusal if the error says that memory ran out, which no check could foresee."""
    from posttrain.learning.models.memory import refused_memory

    asked = refused_memory(error)
    if asked is None:
        return None
    return {
        "kind": "refused",
        "error": f"stage '{assignment.stage}': {asked} could not be had on {assignment.device};"
        " lower its batch_tokens, micro_batch_tokens, batch_size, max_tokens or max_length, or take"
        " a smaller model",
    }


@contextlib.contextmanager
def logged(log: Path) -> Iterator[None]:
    """Send everything that this process prints, native code included, to the stage's log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        yield


@contextlib.contextmanager
def _exclusive(scratch: Path) -> Iterator[None]:
    """Hold the scratch folder, so that a dying attempt never writes beside its successor."""
    scratch.mkdir(parents=True, exist_ok=True)
    with (scratch / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _start_watchers(channel: Channel) -> None:
    """Beat for the executor, and die with it: a stage without an executor would be an orphan."""
    parent = parent_process()
    assert parent is not None

    def die_with_parent() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    def send_heartbeats() -> None:
        while True:
            time.sleep(HEARTBEAT_SECONDS)
            channel.send({"kind": "heartbeat"})

    for target in (die_with_parent, send_heartbeats):
        threading.Thread(target=target, daemon=True).start()
