"""What runs leave beside the cache, as nodes: resume points, half-made outputs, servers' files."""

import contextlib
import re
import sqlite3
from collections.abc import Collection, Iterator
from pathlib import Path

from posttrain.operations.maintenance.claims import Claims
from posttrain.operations.maintenance.live import is_held, workspace_locks
from posttrain.operations.maintenance.policy import RemovableKind, StoredItem
from posttrain.provenance.ledger import Ledger

# What MLflow gives at once; those beyond are found by the next gc.
_MOST_RUNS = 50_000
_MLFLOW_ID = re.compile(r"[0-9a-f]{32}")
_SCRATCH = re.compile(r"(?P<stage>.+)-(?P<key>[0-9a-f]{16})")


def scratch_nodes(states: Collection[Path], ledger: Ledger) -> Iterator[StoredItem]:
    """Checkpoints of stages: the newest of each stage that did not finish is where it goes on."""
    for state in states:
        folders = [path for path in (state / "scratch").glob("*") if path.is_dir()]
        resumed: set[str] = set()
        for folder in sorted(folders, key=lambda path: -_changed(path)):
            match = _SCRATCH.fullmatch(folder.name)
            if match is None:
                continue
            reasons = []
            if is_held(folder / ".lock"):
                reasons.append("a stage is writing to it")
            elif match["stage"] not in resumed and not _finished(ledger, match["key"]):
                reasons.append("a killed or failed stage goes on from it")
            resumed.add(match["stage"])
            yield _folder("checkpoint", folder, tuple(reasons))


def staging_nodes(states: Collection[Path]) -> Iterator[StoredItem]:
    """Outputs that were being made: left over, once no process holds the workspace."""
    for state in states:
        busy = any(is_held(lock) for lock in workspace_locks(state))
        for folder in sorted((state / "staging").glob("*/*")):
            reasons = ("a run is writing to it",) if busy else ()
            yield _folder("staging", folder, reasons)


def mlflow_nodes(state: Path, claims: Claims, ledger: Ledger) -> Iterator[StoredItem]:
    """Artifacts that MLflow keeps of runs: those of runs that it deleted, or that are not kept."""
    top = state / "mlartifacts"
    owners = {run.mlflow_run_id: run.id for run in ledger.runs()}
    owners |= {run.mlflow_run_id: run.run_id for run in ledger.every_stage_run()}
    kept: dict[Path, str] = {}
    for folder in sorted([*top.glob("*"), *top.glob("*/*")]):
        if not folder.is_dir() or not _MLFLOW_ID.fullmatch(folder.name):
            continue
        owner = owners.get(folder.name)
        if owner is None:
            kept[folder] = "no ledger here knows it"
        elif owner in claims.kept_runs:
            kept[folder] = "its run is kept"
        else:
            yield _folder("mlflow", folder, ())
    # Asking costs two seconds of imports: only where the answer matters.
    deleted = _deleted_runs(state / "mlflow.db") if kept else frozenset()
    for folder, reason in kept.items():
        yield _folder("mlflow", folder, () if folder.name in deleted else (reason,))


def _deleted_runs(database: Path) -> Collection[str]:
    """Ids of the runs that MLflow was asked to delete; none where it cannot read its database."""
    if not _is_of_mlflow(database):
        return frozenset()
    from mlflow import MlflowClient, MlflowException
    from mlflow.entities import ViewType

    try:
        client = MlflowClient(tracking_uri=f"sqlite:///{database}")
        experiments = client.search_experiments(view_type=ViewType.ALL)
        found = client.search_runs(
            [each.experiment_id for each in experiments],
            run_view_type=ViewType.DELETED_ONLY,
            max_results=_MOST_RUNS,
        )
    except MlflowException:
        return frozenset()
    return {run.info.run_id for run in found}


def _is_of_mlflow(database: Path) -> bool:
    """True where MLflow made the database: in any other one its client would make tables."""
    if not database.is_file():
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reader:
            names = {name for (name,) in reader.execute("SELECT name FROM sqlite_master")}
    except sqlite3.Error:
        return False
    return {"alembic_version", "experiments", "runs"} <= names


def request_nodes(path: Path, *, clear: bool, live: bool) -> Iterator[StoredItem]:
    """The cache of answers of servers: they were paid for, and go only when that is asked for."""
    parts = {str(file): file.stat().st_size for file in _database_files(path)}
    if parts:
        reasons = [] if clear else ["answers that were paid for (--requests clears them)"]
        if live:
            reasons.insert(0, "a run is under way")
        yield StoredItem(path.name, "requests", parts, reasons=tuple(reasons))


def _database_files(path: Path) -> list[Path]:
    names = (path.name, f"{path.name}-wal", f"{path.name}-shm")
    return [path.with_name(name) for name in names if path.with_name(name).is_file()]


def _folder(kind: RemovableKind, folder: Path, reasons: tuple[str, ...]) -> StoredItem:
    size = sum(_size(file) for file in [folder, *folder.rglob("*")])
    return StoredItem(folder.name, kind, {str(folder): size}, _changed(folder), reasons)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size if not path.is_dir() else 0
    except OSError:
        return 0


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _finished(ledger: Ledger, key: str) -> bool:
    sql = "SELECT 1 FROM stage_runs WHERE key>=:low AND key<:high AND status='succeeded' LIMIT 1"
    return bool(ledger.store.query(sql, {"low": key, "high": key + "g"}))
