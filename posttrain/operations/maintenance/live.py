"""Find out who is at work, by the locks that a run holds and by what the ledger says."""

from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from posttrain.operations.maintenance.git import worktrees
from posttrain.operations.maintenance.reading import ledger_as_it_is
from posttrain.provenance.dvc.guard import projects
from posttrain.provenance.ledger.location import STATE_DIR
from posttrain.provenance.lineage.artifacts import object_folder
from posttrain.stage.errors import UserError

_NOTES = (".json", ".digest")


def at_work(root: Path) -> str | None:
    """Return who uses this project, a worktree of it or its cache; None if it is not used."""
    cache = object_folder(root).parents[1]
    for state in {*states(root), *(other / STATE_DIR for other in projects(cache))}:
        for lock in workspace_locks(state):
            if is_held(lock):
                return f"{lock.parent.parent} is in use by a run"
    with ledger_as_it_is(root) as ledger:
        live = [run for run in ledger.runs() if run.status == "running"] if ledger else []
    return f"run {live[0].id} is under way" if live else None


def states(root: Path) -> list[Path]:
    """The state folder of this project in every worktree."""
    try:
        trees = [tree.resolve() for tree in worktrees(root)]
    except UserError:
        trees = []
    own = root.resolve()
    below = next((own.relative_to(tree) for tree in trees if own.is_relative_to(tree)), Path())
    return sorted({root / STATE_DIR, *(tree / below / STATE_DIR for tree in trees)})


def workspace_locks(state: Path) -> Iterator[Path]:
    """The lock files of the recipes of one workspace, held or not."""
    for path in sorted(state.glob("lock-*")):
        if not path.name.endswith(_NOTES):
            yield path


def is_held(lock: Path) -> bool:
    """Return whether a living process holds a lock file; none is made by looking."""
    try:
        if lock.is_file():
            with FileLock(lock, timeout=0):
                return False
    except Timeout:
        return True
    except OSError:
        return False
    return False
