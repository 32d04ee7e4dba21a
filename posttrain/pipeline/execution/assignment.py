"""What passes between the executor and a stage's process: an assignment there, events back."""

import importlib
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path

from posttrain.pipeline.hermetic.view import StageView
from posttrain.stage.config import StageConfig
from posttrain.stage.kernels import Kernels
from posttrain.stage.resources import RayResources
from posttrain.stage.spec import ArtifactKind


@dataclass(frozen=True)
class Assignment:
    """One attempt at one stage, as sent to its process."""

    stage: str
    entry: str
    config: StageConfig
    inputs: Mapping[str, Path]
    outputs: Mapping[str, Path]
    types: Mapping[str, ArtifactKind]
    scratch: Path
    log: Path
    seed: int
    threads: int
    device: str
    kernels: Kernels = "portable"
    processes: int = 1
    ray: RayResources | None = None
    plugins: tuple[str, ...] = ()
    """Modules whose parts the stage may find; its rows name parts too, such as verifiers."""
    gpus: tuple[str, ...] = ()
    unkeyed: frozenset[str] = frozenset()
    """Packages that are not in the stage's key, as its parameters have no use for them."""
    view: StageView | None = None
    """What its process may reach; None holds it to nothing."""

    def function(self) -> Callable[..., Mapping[str, float] | None]:
        """The task's function; its module is imported now."""
        module, _, name = self.entry.partition(":")
        function: Callable[..., Mapping[str, float] | None]
        function = getattr(importlib.import_module(module), name)
        return function


@dataclass(frozen=True)
class Order:
    """What a waiting process receives: an assignment, and where the executor is by now."""

    assignment: Assignment
    path: tuple[str, ...]
    folder: str


class Channel:
    """The one-way pipe to the executor; safe to use from the heartbeat thread too."""

    def __init__(self, pipe: connection.Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(self, event: Mapping[str, object]) -> None:
        """Send one event; the executor being gone ends this process."""
        try:
            with self._lock:
                self._pipe.send(dict(event))
        except (BrokenPipeError, ConnectionResetError):
            os._exit(1)


def rank_log(log: Path, rank: int) -> Path:
    """Return where a rank's output goes: that of rank 0 is the stage's log."""
    return log.with_name(f"{log.stem}.rank{rank}{log.suffix}") if rank else log
