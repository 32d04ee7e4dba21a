"""Which commit the code of a run is, and whether the checkout had changes on top of it."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Revision:
    """A git commit; None outside a repository or before its first commit."""

    commit: str | None
    dirty: bool


def revision_of(root: Path) -> Revision:
    """Ask git; tracked files only, since a run's own outputs are untracked or ignored."""
    commit = _git(root, "rev-parse", "HEAD")
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    return Revision(commit or None, bool(changes))


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
