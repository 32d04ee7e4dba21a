"""Work on parts of a table as Ray tasks; one that is lost with its machine is done again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from posttrain.backends.cluster.connection import connected, plain_errors
from posttrain.backends.cluster.settings import environment
from posttrain.stage.resources import RayResources

_ROWS = 20_000
"""Rows of a part where the recipe does not say: some seconds of work."""
_MAX_RETRIES = 3


@dataclass(frozen=True)
class Tasks:
    """Parts of equal size as tasks, what they share stored once; a `Parallel` of the filters."""

    ray: Any
    rows: int
    options: Mapping[str, Any]

    def slices(self, num_rows: int) -> list[slice]:
        """As many parts as it takes, whatever the size of the cluster."""
        return [slice(at, at + self.rows) for at in range(0, max(num_rows, 1), self.rows)]

    def each(self, function: Callable[..., Any], parts: Sequence[Any], *shared: Any) -> list[Any]:
        """The results in the order of the parts, whichever was done first."""
        task = self.ray.remote(function).options(**self.options)
        stored = [self.ray.put(value) for value in shared]
        begun = [task.remote(part, *stored) for part in parts]
        with plain_errors(self.ray, f"a part of a table ended {_MAX_RETRIES + 1} processes"):
            results: list[Any] = self.ray.get(begun)
        return results


@contextmanager
def on_cluster(resources: RayResources) -> Iterator[Tasks]:
    """Tasks on the cluster of the recipe."""
    with connected(resources) as ray:
        options = {
            "num_cpus": resources.cpus,
            "max_retries": _MAX_RETRIES,
            "runtime_env": {"env_vars": environment()},
        }
        yield Tasks(ray, resources.rows or _ROWS, options)
