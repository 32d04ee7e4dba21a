"""Where a run came from beside its commit: on which branch and account, what was stated."""

import getpass
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from posttrain.provenance.git import ask_git
from posttrain.provenance.ledger.annotations import Annotations

_NOTE = "origin"


@dataclass(frozen=True)
class RunOrigin:
    """What people look for beside a run.

    Args:
        account: Of the system that it was started from; who asked for it is `Run.actor`.
        branch: Of git; empty where no branch is checked out.
        repository: Address of the remote `origin`, without credentials; empty without one.
        stated: What the recipe and its overrides state, by dotted name, as JSON.

    """

    account: str = ""
    branch: str = ""
    repository: str = ""
    stated: Mapping[str, str] = field(default_factory=dict)


def origin_of(root: Path, stated: Mapping[str, str]) -> RunOrigin:
    """Ask git and the system where a run that begins now comes from.

    Args:
        root: The project.
        stated: What its recipe states.

    Returns:
        The origin; empty where git and the system do not know.

    """
    return RunOrigin(
        account=_account(),
        branch=ask_git(root, "symbolic-ref", "--short", "-q", "HEAD") or "",
        repository=without_credentials(ask_git(root, "remote", "get-url", "origin") or ""),
        stated=stated,
    )


def note_origin(annotations: Annotations, run: str, origin: RunOrigin) -> None:
    """Note where a run came from.

    Args:
        annotations: Of the ledger.
        run: Its id.
        origin: What is noted.

    """
    annotations.note(_NOTE, {run: json.dumps(asdict(origin), sort_keys=True)})


def origins(annotations: Annotations) -> dict[str, RunOrigin]:
    """Look up every run of which it was noted; older ones have nothing.

    Args:
        annotations: Of the ledger.

    Returns:
        Origins by run.

    """
    return {run: RunOrigin(**json.loads(text)) for run, text in annotations.noted(_NOTE).items()}


def without_credentials(address: str) -> str:
    """Take the name and password off an address that holds them.

    >>> without_credentials("https://me:secret@example.org/a.git")
    'https://example.org/a.git'
    >>> without_credentials("git@example.org:a.git")
    'git@example.org:a.git'

    Args:
        address: A URL, or as ssh writes it.

    Returns:
        The address without them.

    """
    parts = urlsplit(address)
    if not parts.scheme or "@" not in parts.netloc:
        return address
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return ""
