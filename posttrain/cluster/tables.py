"""Work on parts of a table as Ray tasks; one that is lost with its machine is done again."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from posttrain.cluster.connection import connected
from posttrain.cluster.settings import environment
from posttrain.pipeline.resources import RayResources


class Spread(Protocol):
    """Applies a function to every part; the results come in the order of the parts."""

    def __call__(
        self, function: Callable[..., Any], parts: Sequence[Any], *shared: Any
    ) -> list[Any]:
        """`[function(part, *shared) for part in parts]`, wherever that is computed."""
        ...


def here(function: Callable[..., Any], parts: Sequence[Any], *shared: Any) -> list[Any]:
    """Part by part in this process."""
    return [function(part, *shared) for part in parts]


@contextmanager
def spread_over(resources: RayResources | None) -> Iterator[Spread]:
    """The way to work on parts: on the cluster where there is one to take, else `here`."""
    if resources is None:
        yield here
        return
    with connected(resources) as ray:
        options = {
            "num_cpus": resources.cpus,
            "max_retries": 3,
            "runtime_env": {"env_vars": environment()},
        }

        def spread(function: Callable[..., Any], parts: Sequence[Any], *shared: Any) -> list[Any]:
            task = ray.remote(function).options(**options)
            stored = [ray.put(value) for value in shared]
            return list(ray.get([task.remote(part, *stored) for part in parts]))

        yield spread
