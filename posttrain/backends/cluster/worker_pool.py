"""Interchangeable actors that share out work; Ray replaces a lost one and redoes its piece."""

import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from posttrain.backends.cluster.connection import plain_errors
from posttrain.backends.cluster.settings import TorchSettings, environment
from posttrain.stage.resources import RayResources
from posttrain.stage.rules import Heard, Rules, keeping, present_rules

MAX_LOSSES = 3
"""Processes that one piece of work, or the start of one actor, may cost."""
_SECONDS_TO_CLOSE = 5.0


class PoolWorker(Protocol):
    """Does pieces of work; the same piece with the same tools gives the same result anywhere."""

    def equip(self, version: int, tools: Any) -> None:
        """Take over tools: the weights of a policy, for instance."""
        ...

    def do(self, piece: Any) -> Any:
        """The result of one piece."""
        ...

    def close(self) -> None:
        """Give up what it holds open; it is asked nothing more, and may be at work yet."""
        ...


class WorkerActor:
    """One actor. Ray begins it anew where its process is gone: then it makes its worker again."""

    def __init__(
        self,
        number: int,
        rules: Rules,
        settings: TorchSettings,
        make: Callable[..., PoolWorker],
        *arguments: Any,
    ) -> None:
        self._number = number
        self._rules = rules
        self._settings = settings
        self._make = make
        self._arguments = arguments
        self._heard: Heard | None = None
        self._worker: PoolWorker | None = None
        self._version: int | None = None

    def start(self) -> int:
        """Set the process up and make the worker; returns the process id.

        Not done by `__init__`, so that a refusal to start arrives as what it is.
        """
        with keeping(self._kept()):
            self._ready()
        return os.getpid()

    def do(
        self, version: int | None, tools: Sequence[Any], index: int, piece: Any
    ) -> tuple[int, int, int, Any]:
        """Do a piece: returns the actor's number and process, and the piece's index and result.

        With the tools of exactly this version: where it has others, it fetches these first.
        `tools` holds a reference to them, which Ray does not follow by itself.
        """
        with keeping(self._kept()):
            worker = self._ready()
            if self._version != version:
                import ray

                worker.equip(version or 0, ray.get(tools[0]))
                self._version = version
            return self._number, os.getpid(), index, worker.do(piece)

    def close(self) -> None:
        """Close the worker, if there is one."""
        if self._worker is not None:
            self._worker.close()

    def _kept(self) -> Heard:
        if self._heard is None:
            self._heard = self._rules()
        return self._heard

    def _ready(self) -> PoolWorker:
        if self._worker is None:
            self._settings.take_over()
            self._worker = self._make(*self._arguments)
        return self._worker


class WorkerPool:
    """`resources.actors` workers, each in an actor of its own.

    Results come in the order of the pieces, whoever does which. A piece is done again only once
    the process that had it is gone, so that nothing is lost and nothing counted twice.
    """

    def __init__(
        self, ray: Any, resources: RayResources, make: Callable[..., PoolWorker], *arguments: Any
    ) -> None:
        self._ray = ray
        # Put there once, however many actors read it, and kept for those that begin anew.
        self._arguments = [ray.put(argument) for argument in arguments]
        remote = ray.remote(WorkerActor).options(
            num_cpus=resources.cpus,
            num_gpus=resources.gpus,
            max_restarts=-1,
            max_task_retries=MAX_LOSSES - 1,
            runtime_env={"env_vars": environment()},
        )
        rules, settings = present_rules(), TorchSettings.present()
        self._actors = [
            remote.remote(number, rules, settings, make, *self._arguments)
            for number in range(resources.actors)
        ]
        self._version: int | None = None
        self._tools: list[Any] = []
        self._next = 0
        self.num_lost = 0
        with plain_errors(ray, f"the start of an actor ended {MAX_LOSSES} processes"):
            self.pids: list[int] = ray.get([actor.start.remote() for actor in self._actors])

    def equip(self, version: int, tools: Any) -> None:
        """Give every actor the tools for all later work; they are stored once."""
        self._version, self._tools = version, [self._ray.put(tools)]

    def do(self, pieces: Sequence[Any]) -> list[Any]:
        """The results of all pieces, in their order; raises what a worker raises."""
        from ray.util import ActorPool

        version, tools = self._version, self._tools
        done = ActorPool(self._actors).map_unordered(
            lambda actor, piece: actor.do.remote(version, tools, *piece), list(enumerate(pieces))
        )
        results: list[Any] = [None] * len(pieces)
        with plain_errors(self._ray, f"the same piece of work ended {MAX_LOSSES} processes"):
            for number, pid, index, result in done:
                self._note_process(number, pid)
                results[index] = result
        return results

    def begin(self, piece: Any) -> Any:
        """Have one piece done with the present tools; what comes of it is had by `result`."""
        number, self._next = self._next, (self._next + 1) % len(self._actors)
        return self._actors[number].do.remote(self._version, self._tools, 0, piece)

    def result(self, begun: Any) -> Any:
        """Return what came of a piece, once it is done; raises what the worker raised."""
        with plain_errors(self._ray, f"the same piece of work ended {MAX_LOSSES} processes"):
            number, pid, _, found = self._ray.get(begun)
        self._note_process(number, pid)
        return found

    def close(self) -> None:
        """Close the workers, and end the actors, whatever they are doing."""
        closing = [actor.close.remote() for actor in self._actors]
        if closing:
            self._ray.wait(closing, num_returns=len(closing), timeout=_SECONDS_TO_CLOSE)
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors.clear()

    def _note_process(self, number: int, pid: int) -> None:
        lost = self.pids[number]
        if pid != lost:
            self.pids[number] = pid
            self.num_lost += 1
            print(f"the actor in process {lost} is gone; another one does its work", flush=True)
