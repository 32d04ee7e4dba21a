"""What dead processes left: notes of locks, half-made outputs, worktrees without a folder."""

import contextlib
import json
import os
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psutil

from posttrain.operations.maintenance.checks.finding import CheckScope, Finding
from posttrain.operations.maintenance.live import is_held, workspace_locks
from posttrain.provenance.git import run_git

_FIX = "posttrain doctor --fix removes it"
_NAMES = """SELECT schedule FROM decisions WHERE due = 0 AND event <> 'removed' AND num IN (
    SELECT max(num) FROM decisions WHERE due = 0 GROUP BY schedule)"""


def leftovers(place: CheckScope) -> Iterator[Finding]:
    """Find files that no process owns any more; `--fix` removes what no run would need."""
    found = [*_dead(place), *_half_made(place), *_pruned(place), *_orphans(place)]
    yield from found or [Finding("leftovers", "ok", "none: no dead locks, no half-made outputs")]


def _dead(place: CheckScope) -> Iterator[Finding]:
    """Notes of who holds a workspace, and DVC's own list of who reads and writes."""
    for path, who in (*_holders(place.state), *_dvc(place.project / ".dvc" / "tmp" / "rwlock")):
        says = f"{path.relative_to(place.project)} is of {who}, which is gone"
        if place.fixes:
            path.unlink(missing_ok=True)
        yield _finding_of_leftovers(place, says)


def _half_made(place: CheckScope) -> Iterator[Finding]:
    """Outputs that a killed run was making; the next run of the recipe removes them as well."""
    for folder in sorted((place.state / "staging").glob("*/*")):
        lock = place.state / f"lock-{folder.parent.name}"
        if is_held(lock):
            continue
        says = f"{folder.relative_to(place.project)}, which a killed run was making"
        if place.fixes:
            shutil.rmtree(folder, ignore_errors=True)
        yield _finding_of_leftovers(place, says)


def _pruned(place: CheckScope) -> Iterator[Finding]:
    """Worktrees that git knows and whose folder is gone: their branch or commit stays taken."""
    done = run_git(place.project, "worktree", "prune", "--dry-run", "-v")
    # Where it reports what it would do, git uses the one stream or the other.
    said = "" if done.returncode else done.stdout + done.stderr
    gone = [line for line in said.splitlines() if line]
    if gone:
        says = f"git knows {len(gone)} worktrees whose folder is gone"
        if place.fixes:
            run_git(place.project, "worktree", "prune")
        yield _finding_of_leftovers(place, says)


def _orphans(place: CheckScope) -> Iterator[Finding]:
    """Worktrees of schedules that are no more; what their runs made is in the cache."""
    journal = place.state / "schedules.db"
    trees = sorted((place.state / "worktrees").glob("*/tree"))
    if not trees or not journal.is_file() or os.environ.get("POSTTRAIN_SCHEDULES"):
        return
    try:
        with contextlib.closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as database:
            known = {row[0] for row in database.execute(_NAMES)}
    except sqlite3.Error:
        return
    for tree in trees:
        if tree.parent.name not in known:
            says = f"{tree.relative_to(place.project)} is of a schedule that is no more"
            yield Finding("leftovers", "warning", says, f"git worktree remove --force {tree}")


def _finding_of_leftovers(place: CheckScope, says: str) -> Finding:
    if place.fixes:
        return Finding("leftovers", "ok", f"{says}: removed")
    return Finding("leftovers", "warning", says, place.how(_FIX))


def _holders(state: Path) -> Iterator[tuple[Path, str]]:
    for lock in workspace_locks(state):
        note = lock.with_suffix(".json")
        with contextlib.suppress(OSError, ValueError, KeyError):
            who = json.loads(note.read_text(encoding="utf-8"))
            if who["host"] == socket.gethostname() and not is_held(lock):
                yield note, f"process {who['pid']} ('{who['command']}')"


def _dvc(path: Path) -> Iterator[tuple[Path, str]]:
    """DVC notes readers and writers by process id, and refuses for as long as they are noted."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        pids: set[int] = set()
        for noted in json.loads(path.read_text(encoding="utf-8")).values():
            writer = noted.get("write")
            infos = [*(noted.get("read") or ()), *([writer] if writer else ())]
            pids |= {int(info["pid"]) for info in infos}
        dead = sorted(pid for pid in pids if not psutil.pid_exists(pid))
        if dead and len(dead) == len(pids):
            yield path, f"process {dead[0]} (dvc)"
