"""The stages and flows that come with posttrain, and how a project's own stand beside them."""

from collections.abc import Iterable
from pathlib import Path

import posttrain

SHARED = ("flows", "tasks")
"""Packages of which a project has modules of its own and uses the installed ones as well."""


def home() -> Path:
    """The folder in which posttrain's own packages lie."""
    return Path(posttrain.__file__).resolve().parents[1]


def beside(package: str, path: Iterable[str]) -> list[str]:
    """Give the search path of a project's package `flows` or `tasks`: its own folder goes first.

    For the `__init__.py` of that package: ``__path__ = beside(__name__, __path__)``. A module of
    the project hides an installed one of the same name.

    Args:
        package: `flows` or `tasks`.
        path: Its search path so far.

    Returns:
        The folders of the project, then the installed one where it is another.

    """
    own = list(path)
    installed = home() / package
    new = installed.is_dir() and all(Path(each).resolve() != installed for each in own)
    return [*own, str(installed)] if new else own
