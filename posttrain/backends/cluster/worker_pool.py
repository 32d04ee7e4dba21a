"""Interchangeable actors that share out work; Ray replaces a lost one and redoes its piece."""

from collections.abc import Callable, Sequence
from typing import Any

from posttrain.backends.cluster.connection import plain_errors
from posttrain.backends.cluster.settings import TorchSettings, environment
from posttrain.backends.cluster.worker import PoolWorker, WorkerActor
from posttrain.stage.resources import RayResources

_MAX_LOSSES = 3
"""Processes that one piece of work, or the start of one actor, may cost."""


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
            max_task_retries=_MAX_LOSSES - 1,
            runtime_env={"env_vars": environment()},
        )
        settings = TorchSettings.present()
        self._actors = [
            remote.remote(number, settings, make, *self._arguments)
            for number in range(resources.actors)
        ]
        self._version: int | None = None
        self._tools: list[Any] = []
        self.num_lost = 0
        with plain_errors(ray, f"the start of an actor ended {_MAX_LOSSES} processes"):
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
        with plain_errors(self._ray, f"the same piece of work ended {_MAX_LOSSES} processes"):
            for number, pid, index, result in done:
                self._note_process(number, pid)
                results[index] = result
        return results

    def close(self) -> None:
        """End the actors, whatever they are doing."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors.clear()

    def _note_process(self, number: int, pid: int) -> None:
        lost = self.pids[number]
        if pid != lost:
            self.pids[number] = pid
            self.num_lost += 1
            print(f"the actor in process {lost} is gone; another one does its work", flush=True)
