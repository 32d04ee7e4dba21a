"""One line of a diagnosis."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from posttrain.operations.maintenance.live import at_work
from posttrain.provenance.ledger.location import STATE_DIR


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
