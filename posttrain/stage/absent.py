"""Packages that look absent to what is imported meanwhile."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def absent(*names: str) -> Iterator[None]:
    """Let packages look as if they were not installed, for as long as the context lasts.

    For libraries that import whatever else is there: what they would do with it is not asked for,
    and might take time, write to the terminal, or reach for a network.

    >>> with absent("tabnanny"):
    ...     import importlib.util
    ...     print(importlib.util.find_spec("tabnanny"))
    None

    Args:
        names: Packages; one that is imported already stays.

    """
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
