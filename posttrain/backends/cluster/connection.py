"""Find a Ray cluster, or start one, and refuse in one sentence what cannot be worked on."""

import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from posttrain.stage.errors import UserError, first_line
from posttrain.stage.extras import extra_line
from posttrain.stage.resources import RayResources

INSTALL = extra_line("ray")
_CONNECT_SECONDS = 3.0
_PREFIX = "posttrain-ray-"
_HELD = "held"
"""File that a process holds locked for as long as its cluster is there."""
_STORE_BYTES = 512 * 2**20
"""Shared memory of a cluster that is started here; weights and tables are put there once each."""
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would tell actors without a GPU that there is none, and warns that it will stop doing so.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Actors do the work of the stage: at Ray's own priority (15) a busy machine starves them, and
    # a process that has not said hello within a minute is ended, and begun again, forever.
    "RAY_worker_niceness": "0",
    "RAY_worker_register_timeout_seconds": "600",
}


@contextmanager
def connected(resources: RayResources) -> Iterator[Any]:
    """The `ray` module, connected; what was started for it ends with the context.

    Where this process is connected already, that connection serves and stays. Raises `UserError`
    where Ray is not installed, nothing answers, or the cluster is too small.
    """
    ray = _import_ray(resources)
    if ray.is_initialized():
        _check_size(ray.cluster_resources(), resources)
        yield ray
        return
    with _folder() if resources.address == "local" else nullcontext() as folder:
        try:
            _connect(ray, resources.address, folder)
            _check_size(ray.cluster_resources(), resources)
            yield ray
        finally:
            ray.shutdown()


def session_folders(address: str) -> list[Path]:
    """Find where clusters that run on this machine keep logs, sockets and ports.

    Who connects writes there too.

    Args:
        address: As in `RayResources`.

    Returns:
        The folder of each daemon of the cluster at this address; of all that are found for `auto`.

    """
    if address == "local":
        return []
    import psutil

    folders = []
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "raylet":
            given = dict(word.partition("=")[::2] for word in process.info["cmdline"] or ())
            port = given.get("--gcs-address", "").rpartition(":")[2]
            # The machine has many names, of which one may be given; a port has one cluster.
            if "--session_dir" in given and address.rpartition(":")[2] in ("auto", port):
                folders.append(Path(given["--session_dir"]))
    return folders


@contextmanager
def _folder() -> Iterator[str]:
    """A place for the files of a cluster; those that killed processes have left are removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_HELD}"):
        with suppress(OSError), FileLock(left, timeout=0):
            shutil.rmtree(left.parent, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    with FileLock(Path(folder) / _HELD):
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _import_ray(resources: RayResources) -> Any:
    os.environ.update(_ENVIRONMENT)
    if resources.address == "local":
        # Ray listens on every interface; who knows no token is turned away, and this one nobody
        # knows. Without it Ray would leave one in the home folder.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray
    except ModuleNotFoundError:
        raise UserError(
            f"resources.ray: Ray is not installed; run: {INSTALL}, or leave resources.ray out"
        ) from None
    return ray


def _connect(ray: Any, address: str, folder: str | None) -> None:
    options: dict[str, Any] = {
        "log_to_driver": False,
        "configure_logging": False,
        "logging_level": logging.ERROR,
    }
    if folder is not None:
        options |= {
            "num_cpus": len(os.sched_getaffinity(0)),
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES,
            # 127.0.0.1 would be replaced by an address that other machines reach.
            "_node_ip_address": "127.0.0.2",
            "_temp_dir": folder,
        }
    elif address != "auto":
        _check_answers(address)
    try:
        ray.init(address=address, **options)
    # Ray ends the process where the port is of something else than a cluster.
    except (ConnectionError, ValueError, RuntimeError, OSError, SystemExit) as error:
        raise UserError(f"{_nothing_at(address)} ({first_line(error)})") from None


def _check_answers(address: str) -> None:
    """Ray itself would try for half a minute."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise UserError(
            f"resources.ray: '{address}' is no address of a cluster; write host:port, auto or local"
        )
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError):
        raise UserError(_nothing_at(address)) from None


def _nothing_at(address: str) -> str:
    if address == "auto":
        return (
            "resources.ray: auto finds no Ray cluster on this machine; start one with"
            " `ray start --head`, or set it to local"
        )
    return (
        f"resources.ray: no Ray cluster answers at {address}; check the address and that"
        " `ray status` works there"
    )


def _check_size(present: Mapping[str, float], resources: RayResources) -> None:
    wanted = {
        "CPU": (resources.actors * resources.cpus, "cpus"),
        "GPU": (resources.actors * resources.gpus, "gpus"),
    }
    for kind, (amount, name) in wanted.items():
        there = present.get(kind, 0.0)
        if amount > there:
            raise UserError(
                f"resources.ray: {resources.actors} actors want {amount:g} {kind}s together, but"
                f" the cluster has {there:g}; lower actors or {name}"
            )


@contextmanager
def plain_errors(ray: Any, losses: str) -> Iterator[None]:
    """Raise the very error that was raised elsewhere; of processes that ended, say `losses`."""
    errors = ray.exceptions
    try:
        yield
    except errors.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise UserError(str(error.cause)) from None
        raise
    except (
        errors.RayActorError,
        errors.WorkerCrashedError,
        errors.ObjectLostError,
        errors.NodeDiedError,
        errors.OutOfMemoryError,
    ):
        raise UserError(
            f"resources.ray: {losses}, most likely for want of memory; lower resources.ray.rows"
            " or actors, or see the logs of the cluster"
        ) from None
