"""Ask git, in one place: what a folder's commit is, what it tracks, what it complains of."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from posttrain.stage.errors import UserError


@dataclass(frozen=True)
class Revision:
    """A git commit; None outside a repository or before its first commit."""

    commit: str | None
    dirty: bool


def revision_of(root: Path) -> Revision:
    """Look up the commit that is checked out, and whether there are changes on top of it.

    Tracked files only, since a run's own outputs are untracked or ignored.

    Args:
        root: Folder of the project.

    Returns:
        The revision; without a commit where there is no repository.

    """
    commit = ask_git(root, "rev-parse", "HEAD")
    changes = ask_git(root, "status", "--porcelain", "--untracked-files=no")
    return Revision(commit or None, bool(changes))


def run_git(
    folder: Path,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    keep_open: tuple[int, ...] = (),
) -> "subprocess.CompletedProcess[str]":
    """Run a git command in a folder, whatever comes of it.

    Args:
        folder: Where.
        arguments: The command and its arguments.
        env: Variables beside those of this process.
        keep_open: File descriptors that git inherits.

    Returns:
        Its status and what it wrote.

    Raises:
        UserError: There is no git.

    """
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=_environment() | dict(env or {}),
            pass_fds=keep_open,
        )
    except FileNotFoundError:
        raise UserError("git is not installed; install it: a project is a git repository") from None


def ask_git(folder: Path, *arguments: str) -> str | None:
    """Ask git something that may have no answer.

    Args:
        folder: Where git runs.
        *arguments: Of git.

    Returns:
        What it answers, without white space around it; None where it fails or is not installed.

    """
    try:
        done = run_git(folder, *arguments)
    except UserError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def require_git(folder: Path, *arguments: str, purpose: str) -> str:
    """Run git, and return what it writes as it is.

    Args:
        folder: Where.
        arguments: The command and its arguments.
        purpose: Ends the sentence where git fails: what it was needed for, or what was left.

    Returns:
        Its standard output.

    Raises:
        UserError: There is no git, or it failed.

    """
    done = run_git(folder, *arguments)
    if done.returncode:
        said = said_by(done) or "no message"
        raise UserError(f"git {arguments[0]} in {folder}: {said}; {purpose}")
    return done.stdout


def said_by(done: "subprocess.CompletedProcess[str]") -> str:
    """The last line of what git complained, or nothing."""
    return (done.stderr.strip().splitlines() or [""])[-1]


def file_at(root: Path, commit: str, path: str) -> bytes | None:
    """Read a file as a commit has it.

    Args:
        root: A folder of the repository.
        commit: Any name of it that git takes.
        path: Relative to `root`, with forward slashes.

    Returns:
        Its bytes; None where git, the commit or the file is missing.

    """
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "show", f"{commit}:./{path}"],
            capture_output=True,
            check=False,
            env=_environment(),
        )
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def _environment() -> dict[str, str]:
    # In a hook git itself sets GIT_DIR, and then no folder would count.
    return {name: each for name, each in os.environ.items() if name != "GIT_DIR"}
