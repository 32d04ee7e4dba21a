"""Work on a table part by part: in this process as one part, on a cluster as many."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from posttrain.stage.resources import RayResources


class Parallel(Protocol):
    """How a filter's expensive steps are shared out. It must not change what they give."""

    def slices(self, num_rows: int) -> list[slice]:
        """Cut so many rows into parts, in order; at least one, also where there is no row."""
        ...

    def each(self, function: Callable[..., Any], parts: Sequence[Any], *shared: Any) -> list[Any]:
        """Compute `function(part, *shared)` of every part, in the order of the parts."""
        ...


class InProcess:
    """The whole table as one part, in this process."""

    def slices(self, num_rows: int) -> list[slice]:
        """Return one slice of all rows."""
        return [slice(0, num_rows)]

    def each(self, function: Callable[..., Any], parts: Sequence[Any], *shared: Any) -> list[Any]:
        """Compute part by part."""
        return [function(part, *shared) for part in parts]


IN_PROCESS = InProcess()


@contextmanager
def parallel_over(resources: RayResources | None) -> Iterator[Parallel]:
    """Share work out over the cluster of `resources`, or do it here where there is none."""
    if resources is None:
        yield IN_PROCESS
        return
    from posttrain.backends.cluster.tables import on_cluster

    with on_cluster(resources) as tasks:
        yield tasks
