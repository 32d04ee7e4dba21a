"""Work on a table part by part: in this process as one part, on a cluster as many."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from posttrain.stage.resources import RayResources


class Spread(Protocol):
    """How a filter's expensive steps are shared out. It must not change what they give."""

    def slices(self, num_rows: int) -> list[slice]:
        """Parts of so many rows, in order; at least one, also where there is no row."""
        ...

    def each(self, function: Callable[..., Any], parts: Sequence[Any], *shared: Any) -> list[Any]:
        """`function(part, *shared)` of every part, in the order of the parts."""
        ...


class Here:
    """The whole table as one part, in this process."""

    def slices(self, num_rows: int) -> list[slice]:
        """One slice of all rows."""
        return [slice(0, num_rows)]

    def each(self, function: Callable[..., Any], parts: Sequence[Any], *shared: Any) -> list[Any]:
        """Part by part."""
        return [function(part, *shared) for part in parts]


HERE = Here()


@contextmanager
def spread_over(resources: RayResources | None) -> Iterator[Spread]:
    """On the cluster where there is one to take, else here."""
    if resources is None:
        yield HERE
        return
    from posttrain.backends.cluster.tables import on_cluster

    with on_cluster(resources) as spread:
        yield spread
