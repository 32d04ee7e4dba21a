"""Garbage collection: look at everything, decide, remove."""

import contextlib
import errno
import json
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from filelock import FileLock, Timeout

from posttrain.backends.endpoint.cache import default_path
from posttrain.operations.maintenance.cache import Objects, nodes_of, read_objects, stale_run_cache
from posttrain.operations.maintenance.claims import Claims, Keep, claims_of
from posttrain.operations.maintenance.git import named, worktrees
from posttrain.operations.maintenance.live import states
from posttrain.operations.maintenance.policy import RemovalDecision, StoredItem, decide
from posttrain.operations.maintenance.prefect import history_nodes, remove_history
from posttrain.operations.maintenance.state import (
    mlflow_nodes,
    request_nodes,
    scratch_nodes,
    staging_nodes,
)
from posttrain.operations.services.plan import FOLDER
from posttrain.operations.services.process import alive
from posttrain.provenance.dvc.guard import guarded, projects
from posttrain.provenance.ledger import Ledger, read_ledger
from posttrain.provenance.ledger.location import STATE_DIR
from posttrain.stage.errors import UserError
from posttrain.stage.files import replacing

_JOURNAL = "posttrain-gc.json"
_CHUNK = 64

_DAY = 86400.0
# Objects that a run stored just before its start was noted, by clocks that differ a little.
_MARGIN = 60.0


def doomed(cache: Path) -> set[str]:
    """Objects that an interrupted removal had decided on: some of them may be there still."""
    try:
        return set(json.loads((cache / _JOURNAL).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return set()


def remove_objects(
    cache: Path, objects: Objects, pieces: Collection[str], progress: Callable[[int], None]
) -> int:
    """Remove objects that have not changed since they were looked at; bytes that were freed.

    Lists of directories go first: where a list is, all its files are. Which objects go is written
    down before, because a file whose list is gone would belong to nobody.
    """
    listed = [oid for oid in sorted(pieces) if oid in objects.found]
    if not listed:
        return 0
    freed = 0
    if not _noted(cache, listed):
        # Without a line of room: what is in no list needs no note, and makes some.
        inside = {each for oid in objects.found for each in objects.files(oid)}
        single = [oid for oid in listed if oid not in inside and not oid.endswith(".dir")]
        for chunk in _chunks(single):
            freed += _remove(cache, objects, chunk, progress)
        listed = [oid for oid in listed if oid not in single]
        if listed and not _noted(cache, listed):
            raise UserError(
                f"no space left on the disk of {cache}, not even to note what goes; remove any file"
                " by hand, then run gc again"
            )
    for chunk in _chunks([oid for oid in listed if oid.endswith(".dir")]):
        freed += _remove(cache, objects, chunk, progress)
    for chunk in _chunks([oid for oid in listed if not oid.endswith(".dir")]):
        freed += _remove(cache, objects, chunk, progress)
    (cache / _JOURNAL).unlink(missing_ok=True)
    return freed


def _noted(cache: Path, listed: Sequence[str]) -> bool:
    """Write down which objects go; False where the disk is full."""
    try:
        with replacing(cache / _JOURNAL) as partial:
            partial.write_text(json.dumps(listed), encoding="utf-8")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return False
    return True


def remove_paths(paths: Collection[str]) -> None:
    """Remove files and folders; a folder is renamed first, so that half of one is never found."""
    for name in sorted(paths):
        path = Path(name)
        if path.is_dir() and not path.is_symlink():
            aside = path.with_name(f".{path.name}.removed")
            shutil.rmtree(aside, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                path.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _remove(
    cache: Path, objects: Objects, chunk: Sequence[str], progress: Callable[[int], None]
) -> int:
    """Remove some objects while no process stores or restores; what was touched since stays."""
    freed = 0
    with guarded(cache, alone=True):
        for oid in chunk:
            path = objects.path(oid)
            size, seen = objects.found[oid]
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                if max(status.st_mtime, status.st_ctime) > seen:
                    continue
                path.parent.chmod(path.parent.stat().st_mode | stat.S_IWUSR)
                path.unlink()
                freed += size
    progress(len(chunk))
    return freed


def _chunks(oids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(oids), _CHUNK):
        yield oids[start : start + _CHUNK]


@dataclass(frozen=True)
class CollectionPlan:
    """A decision, and what is needed to carry it out."""

    decision: RemovalDecision
    objects: Objects
    cache: Path
    prefect: Path


def make_plan(
    root: Path, ledger: Ledger, cache: Path, keep: Keep, *, budget: int | None, requests: bool
) -> CollectionPlan:
    """Look at everything that a project keeps, and decide; changes nothing."""
    # What is stored or touched after this look is younger than it, and is never removed.
    objects = read_objects(cache)
    claims = claims_of(ledger, keep)
    wanted = named(root)
    for other in _others(root, cache):
        _add_neighbor(claims, other, keep)
        wanted = named(other) | wanted
    since = min((run.started for run in claims.live), default=time.time() + _DAY) - _MARGIN
    nodes = list(nodes_of(objects, claims, wanted, doomed=doomed(cache), since=since))
    nodes += _state_nodes(root, ledger, claims, requests=requests)
    decision = decide(nodes, budget)
    stale = list(stale_run_cache(cache, objects, decision.pieces))
    if stale:
        decision = decide([*nodes, *stale], budget)
    return CollectionPlan(decision, objects, cache, root / STATE_DIR / "prefect" / "prefect.db")


def carry_out(plan: CollectionPlan, progress: Callable[[int], None]) -> int:
    """Remove what was decided; bytes that were freed. A kill in between loses nothing else."""
    try:
        with FileLock(plan.cache / "posttrain-gc.lock", timeout=0):
            return _carry_out(plan, progress)
    except Timeout:
        raise UserError("another gc is at work on this cache; wait for it") from None
    except PermissionError as error:
        raise UserError(f"cannot remove {error.filename}: {error.strerror}") from None


def _carry_out(plan: CollectionPlan, progress: Callable[[int], None]) -> int:
    pieces = plan.decision.pieces
    paths = {piece for piece in pieces if "/" in piece}
    flow_runs = [node.name for node in plan.decision.removed if node.kind == "prefect"]
    # First what makes room without any being needed for a note.
    remove_paths(paths)
    freed = remove_objects(plan.cache, plan.objects, pieces - paths, progress)
    remove_history(plan.prefect, flow_runs)
    sizes = {piece: size for node in plan.decision.removed for piece, size in node.parts.items()}
    return freed + sum(sizes[piece] for piece in pieces if piece not in plan.objects.found)


def _state_nodes(root: Path, ledger: Ledger, claims: Claims, *, requests: bool) -> list[StoredItem]:
    state = root / STATE_DIR
    places = states(root)
    runs = {run.id: run for run in ledger.runs()}
    kept = [runs[each] for each in claims.kept_runs if each in runs]
    flow_runs = {run.prefect_run_id for run in kept if run.prefect_run_id}
    before = datetime.now(UTC) - timedelta(seconds=_DAY)
    busy = _in_use(root, claims)
    return [
        *scratch_nodes(places, ledger),
        *staging_nodes(places),
        *mlflow_nodes(state, claims, ledger),
        *request_nodes(default_path(), clear=requests, live=bool(claims.live)),
        *history_nodes(state / "prefect" / "prefect.db", flow_runs, before=before, in_use=busy),
    ]


def _in_use(root: Path, claims: Claims) -> str | None:
    if alive(root / FOLDER, "prefect") is not None:
        return "its server is up (posttrain down first)"
    return "a run is under way" if claims.live else None


def _others(root: Path, cache: Path) -> list[Path]:
    """Other projects that keep objects in this cache, worktrees of this one left out."""
    own = {tree.resolve() for tree in worktrees(root)} | {root.resolve()}
    return [
        other
        for other in projects(cache)
        if not any(other.resolve() == tree or tree in other.resolve().parents for tree in own)
    ]


def _add_neighbor(claims: Claims, root: Path, keep: Keep) -> None:
    """Take over what another project's ledger says for keeping objects of the cache."""
    database = root / STATE_DIR / "ledger.db"
    if not database.is_file():
        return
    with read_ledger(database) as ledger:
        theirs = claims_of(ledger, replace(keep, metrics=()))
    reasons: Mapping[str, dict[str, None]] = theirs.reasons
    for md5, why in reasons.items():
        for reason in why:
            claims.claim(md5, f"{reason} ({root.name})")
    for md5 in theirs.used:
        claims.used[md5] = max(theirs.used[md5], claims.used.get(md5, 0.0))
        claims.names.setdefault(md5, theirs.names[md5])
        claims.types.setdefault(md5, theirs.types[md5])
    claims.live += theirs.live
