"""One line of a diagnosis."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from posttrain.operations.maintenance.live import at_work
from posttrain.provenance.ledger.location import STATE_DIR

_FULL = 4 * 2**20
MAKE_ROOM = "make room on its file system, which is full; then posttrain doctor again"
"""What to do about a database that cannot be used for want of room: it may well be whole."""


def is_full(folder: Path) -> bool:
    """Return whether a file system has no room for what a database writes beside itself."""
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    return free < _FULL or bool(status.f_files and status.f_favail == 0)


@dataclass(frozen=True)
class Finding:
    """What was looked at, how it is, and what to do where it is not well."""

    check: str
    state: Literal["ok", "warning", "broken"]
    says: str
    remedy: str = ""

    def __post_init__(self) -> None:
        assert self.state == "ok" or self.remedy, "a complaint says what to do"


@dataclass(frozen=True)
class CheckScope:
    """Where to look: a project, or None outside of one; whether to read everything, and repair."""

    root: Path | None
    deep: bool = False
    fix: bool = False

    @property
    def project(self) -> Path:
        """The project's folder, where there is one."""
        assert self.root is not None
        return self.root

    @property
    def state(self) -> Path:
        """What its runs leave."""
        return self.project / STATE_DIR

    @cached_property
    def busy(self) -> str | None:
        """Who is at work in this project, or in another one on its cache; nothing is fixed then."""
        return at_work(self.project)

    @property
    def fixes(self) -> bool:
        """Return whether to repair what is safe to repair."""
        return self.fix and self.busy is None

    def how(self, remedy: str) -> str:
        """What to do about something that `--fix` could do itself."""
        return f"{remedy} (not fixed now: {self.busy})" if self.fix and self.busy else remedy
