"""What runs inside an actor: a worker, and the version of the tools that it was given last."""

import os
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class StaleTools:
    """A refusal: the actor holds tools of another version than it was asked to work with."""

    version: int | None


class WorkerActor:
    """One actor. It is made by `start`, so that a refusal to start arrives as what it is."""

    def __init__(self) -> None:
        self._worker: PoolWorker | None = None
        self._version: int | None = None

    def start(
        self, settings: TorchSettings, make: Callable[..., PoolWorker], *arguments: Any
    ) -> int:
        """Set the process up and make the worker; returns the process id."""
        settings.take_over()
        self._worker = make(*arguments)
        return os.getpid()

    def equip(self, version: int, tools: Any) -> None:
        """Hand the worker its tools."""
        assert self._worker is not None
        self._worker.equip(version, tools)
        self._version = version

    def do(self, version: int | None, piece: Any) -> Any:
        """The result of a piece with the tools of exactly this version, or `Behind`."""
        assert self._worker is not None
        if self._version != version:
            return StaleTools(self._version)
        return self._worker.do(piece)
