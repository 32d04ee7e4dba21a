"""What runs inside an actor: a worker, and the version of the tools that it was given last."""

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from posttrain.backends.cluster.settings import TorchSettings


class PoolWorker(Protocol):
    """Does pieces of work; the same piece with the same tools gives the same result anywhere."""

    def equip(self, version: int, tools: Any) -> None:
        """Take over tools: the weights of a policy, for instance."""
        ...

    def do(self, piece: Any) -> Any:
        """The result of one piece."""
        ...


class WorkerActor:
    """One actor. Ray begins it anew where its process is gone: then it makes its worker again."""

    def __init__(
        self,
        number: int,
        settings: TorchSettings,
        make: Callable[..., PoolWorker],
        *arguments: Any,
    ) -> None:
        self._number = number
        self._settings = settings
        self._make = make
        self._arguments = arguments
        self._worker: PoolWorker | None = None
        self._version: int | None = None

    def start(self) -> int:
        """Set the process up and make the worker; returns the process id.

        Not done by `__init__`, so that a refusal to start arrives as what it is.
        """
        self._ready()
        return os.getpid()

    def do(
        self, version: int | None, tools: Sequence[Any], index: int, piece: Any
    ) -> tuple[int, int, int, Any]:
        """Do a piece: returns the actor's number and process, and the piece's index and result.

        With the tools of exactly this version: where it has others, it fetches these first.
        `tools` holds a reference to them, which Ray does not follow by itself.
        """
        worker = self._ready()
        if self._version != version:
            import ray

            worker.equip(version or 0, ray.get(tools[0]))
            self._version = version
        return self._number, os.getpid(), index, worker.do(piece)

    def _ready(self) -> PoolWorker:
        if self._worker is None:
            self._settings.take_over()
            self._worker = self._make(*self._arguments)
        return self._worker
