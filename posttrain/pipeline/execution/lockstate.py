"""Keep dvc.lock true without asking DVC each time whether it is."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from posttrain.pipeline.workspace import Workspace
from posttrain.provenance.dvc import LOCK_FILE, DvcStore, LockEntry
from posttrain.provenance.ledger import ArtifactRecord
from posttrain.stage.hashing import StatCache, digest_path, sha256_of, sha256_of_file, sorted_json

Made = Mapping[str, Mapping[str, ArtifactRecord]]


def refresh_lock(
    workspace: Workspace,
    store: DvcStore,
    entries: Sequence[LockEntry],
    made: Made,
    stat_cache: StatCache,
    *,
    beside: Path | None = None,
) -> bool:
    """Write the entries of the stages in `made` unless they are known to stand there already.

    A comment edited in a dependency changes no key, but it changes the file's hash, which
    `dvc status` compares: the lock follows the file, and nothing runs. One that lies `beside` is
    the committed one with what a try made.
    """
    ready = [entry for entry in entries if entry.name in made]
    if not ready:
        return False
    lock = workspace.recipe_dir / LOCK_FILE
    if beside is not None:
        if lock.is_file():
            shutil.copyfile(lock, beside / LOCK_FILE)
        return store.write_lock(ready, keep=[entry.name for entry in entries], folder=beside)
    memory = workspace.state / f"lock-{workspace.slug}.digest"
    if (
        lock.is_file()
        and memory.is_file()
        and memory.read_text() == _digest_lock(workspace, ready, made, stat_cache)
    ):
        return False
    store.write_lock(ready, keep=[entry.name for entry in entries])
    memory.write_text(_digest_lock(workspace, ready, made, stat_cache))
    return True


def _digest_lock(
    workspace: Workspace, entries: Sequence[LockEntry], made: Made, stat_cache: StatCache
) -> str:
    """One hash of the lock file and of everything that it states."""
    produced = {record.path: record.digest for stage in made.values() for record in stage.values()}
    facts = [
        [
            entry.name,
            entry.cmd,
            [
                [dep, produced.get(dep) or _digest_dependency(workspace, dep, stat_cache)]
                for dep in entry.deps
            ],
            dict(entry.params),
            [[out, produced[out]] for out in entry.outs],
        ]
        for entry in entries
    ]
    lock = sha256_of_file(workspace.recipe_dir / LOCK_FILE)
    return sha256_of(sorted_json([lock, facts], as_text=True))


def _digest_dependency(workspace: Workspace, relative: str, stat_cache: StatCache) -> str:
    return digest_path(Path(workspace.recipe_dir, relative), cache=stat_cache).sha256
