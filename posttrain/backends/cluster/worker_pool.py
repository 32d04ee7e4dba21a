"""Interchangeable actors that share out work; a lost one is replaced, and its piece redone."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.backends.cluster.connection import received
from posttrain.backends.cluster.settings import TorchSettings, environment
from posttrain.backends.cluster.worker import PoolWorker, StaleTools, WorkerActor
from posttrain.stage.errors import UserError
from posttrain.stage.resources import RayResources

_MAX_LOSSES = 3
"""Actors that one piece of work, or the start of one actor, may cost."""


@dataclass(frozen=True)
class _Member:
    """One actor and the process that it lives in."""

    handle: Any
    pid: int


class WorkerPool:
    """`resources.actors` workers, each in an actor of its own.

    Results come in the order of the pieces, whoever does which. A piece is given to another actor
    only once the one that had it is gone, so that nothing is lost and nothing counted twice.
    """

    def __init__(
        self, ray: Any, resources: RayResources, make: Callable[..., PoolWorker], *arguments: Any
    ) -> None:
        self._ray = ray
        self._settings = TorchSettings.present()
        self._make = make
        # Put there once, however many actors read it.
        self._arguments = [ray.put(argument) for argument in arguments]
        self._remote = ray.remote(WorkerActor).options(
            num_cpus=resources.cpus,
            num_gpus=resources.gpus,
            runtime_env={"env_vars": environment()},
        )
        self._version: int | None = None
        self._tools: Any = None
        self._members: list[_Member] = []
        self.num_lost = 0
        for member in self._begin(resources.actors):
            self._members.append(member)

    @property
    def pids(self) -> list[int]:
        """Processes of the actors that are there now."""
        return [member.pid for member in self._members]

    def equip(self, version: int, tools: Any) -> None:
        """Give every actor the tools for all later work; they are stored once."""
        self._version, self._tools = version, self._ray.put(tools)
        for member in self._members:
            # Not waited for: an actor does what it is told in order, and refuses what comes early.
            member.handle.equip.remote(version, self._tools)

    def do(self, pieces: Sequence[Any]) -> list[Any]:
        """The results of all pieces, in their order; raises what a worker raises."""
        results: list[Any] = [None] * len(pieces)
        losses: Counter[int] = Counter()
        waiting, idle = deque(range(len(pieces))), deque(self._members)
        running: dict[Any, tuple[int, _Member]] = {}
        while waiting or running:
            while waiting and idle:
                index, member = waiting.popleft(), idle.popleft()
                answer = member.handle.do.remote(self._version, pieces[index])
                running[answer] = (index, member)
            finished, _ = self._ray.wait(list(running), num_returns=1)
            for answer in finished:
                index, member = running.pop(answer)
                try:
                    result = received(self._ray, answer)
                except _lost(self._ray):
                    losses[index] += 1
                    self._check_losses(losses[index], "the same piece of work")
                    idle.append(self._replace(member))
                    waiting.appendleft(index)
                    continue
                idle.append(member)
                if isinstance(result, StaleTools):
                    member.handle.equip.remote(self._version, self._tools)
                    waiting.appendleft(index)
                else:
                    results[index] = result
        return results

    def close(self) -> None:
        """End the actors, whatever they are doing."""
        for member in self._members:
            self._ray.kill(member.handle)
        self._members.clear()

    def _begin(self, number: int) -> list[_Member]:
        """New actors, started side by side; one that does not outlive its start is tried again."""
        for losses in range(1, _MAX_LOSSES + 1):
            handles = [self._remote.remote() for _ in range(number)]
            settings, make = self._settings, self._make
            starts = [h.start.remote(settings, make, *self._arguments) for h in handles]
            try:
                pids = [received(self._ray, start) for start in starts]
            except _lost(self._ray):
                self._check_losses(losses, "its start")
                for handle in handles:
                    self._ray.kill(handle)
                continue
            return [_Member(handle, pid) for handle, pid in zip(handles, pids, strict=True)]
        raise AssertionError("the last loss raises")

    def _replace(self, lost: _Member) -> _Member:
        """A new actor with the present tools; the old one ends for certain, if it has not yet."""
        self._ray.kill(lost.handle)
        self.num_lost += 1
        print(f"the actor in process {lost.pid} is gone; another one does its work", flush=True)
        (member,) = self._begin(1)
        if self._version is not None:
            member.handle.equip.remote(self._version, self._tools)
        self._members[self._members.index(lost)] = member
        return member

    def _check_losses(self, losses: int, what: str) -> None:
        if losses >= _MAX_LOSSES:
            raise UserError(
                f"resources.ray: {what} ended {losses} actors, most likely for want of memory;"
                " lower resources.ray.rows or actors, or see the logs of the cluster"
            )


def _lost(ray: Any) -> tuple[type[Exception], ...]:
    errors = ray.exceptions
    return (
        errors.RayActorError,
        errors.ObjectLostError,
        errors.NodeDiedError,
        errors.OutOfMemoryError,
    )
