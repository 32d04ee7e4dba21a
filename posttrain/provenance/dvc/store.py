"""Artifacts in the DVC cache and their names in `dvc.lock`, for one recipe."""

import contextlib
import errno
import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.provenance.dvc import lockfile, objects
from posttrain.provenance.dvc.guard import guarded, register
from posttrain.provenance.dvc.records import LOCK_FILE, LockEntry, StoredObject
from posttrain.provenance.dvc.repository import open_repo, remote_failures
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import CacheName

_MOVE = "or move the cache with `dvc cache dir`"
_REASONS = {
    errno.ENOSPC: f"no space left; free some, {_MOVE}",
    errno.EDQUOT: f"the disk quota is used up; free some, {_MOVE}",
    errno.EACCES: f"permission denied; make it writable, {_MOVE}",
    errno.EPERM: f"permission denied; make it writable, {_MOVE}",
    errno.EROFS: f"it is read-only; make it writable, {_MOVE}",
}


class DvcStore:
    """The cache and the lock file of one recipe.

    `recipe_dir` holds `dvc.yaml`, `params.yaml` and `dvc.lock`; it is the root of the repository or
    a directory below it. Nothing is opened before the first call that needs it. Threads may share
    one store, and processes may store at the same time: objects are named by their content and
    appear by rename. The lock file is written under DVC's repository lock, which is waited for.
    """

    def __init__(self, repo_root: Path, recipe_dir: Path) -> None:
        self._root = repo_root.resolve()
        self._dir = recipe_dir.resolve()
        self._opening = threading.Lock()
        self._locking = threading.Lock()
        self._repo: Any = None
        self._asking = threading.Lock()
        self._remote_has: dict[CacheName, bool] = {}
        self._described: dict[tuple[str, int, int, int], StoredObject] = {}

    @property
    def cache(self) -> Path:
        """The folder of the cache."""
        return _cache(self._open())

    def store(self, outs: Sequence[Path]) -> dict[Path, StoredObject]:
        """Copy artifacts into the cache; an object that is there but damaged is replaced."""
        repo = self._open()
        stored = {}
        with (
            _explained("the DVC cache", repo.cache.local.path),
            guarded(_cache(repo)),
        ):
            register(_cache(repo), self._root)
            for out in outs:
                meta, obj = objects.build(repo, out.absolute())
                objects.add(repo.cache.local, repo.fs, out.absolute(), obj)
                stored[out] = _stored(meta, obj)
        return stored

    def describe(self, path: Path) -> StoredObject:
        """What DVC says of a file or directory; unchanged files are not read again."""
        stat = path.stat()
        signature = (str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if path.is_dir() or signature not in self._described:
            self._described[signature] = _stored(*objects.build(self._open(), path.absolute()))
        return self._described[signature]

    def has(self, md5: CacheName) -> bool:
        """Whether the cache holds an object, and every file of it if it is a directory."""
        try:
            return not any(objects.missing(self._open().cache.local, md5))
        except objects.Damaged:
            return False

    def remote_has(self, md5: CacheName) -> bool:
        """Whether the default remote holds an object, and what the cache lacks of its files.

        False where there is no such remote.

        Args:
            md5: Name of the object in the cache.

        Returns:
            What the remote said, asked once for each object.

        Raises:
            UserError: The remote cannot be read.

        """
        from dvc.config import NoRemoteError

        with self._asking:
            if md5 not in self._remote_has:
                try:
                    repo = self._open()
                    odb = repo.cloud.get_remote_odb(None, "pull")
                    self._remote_has[md5] = bool(odb.exists(md5)) and not _lost(repo, odb, md5)
                except (NoRemoteError, objects.Damaged):
                    self._remote_has[md5] = False
                except remote_failures() as error:
                    raise UserError(f"the DVC remote cannot be read: {error}") from None
            return self._remote_has[md5]

    def restore(self, out: Path, md5: CacheName) -> bool:
        """Put an artifact back from the cache, or from the default remote if there is one.

        Every byte is checked against its hash first. A damaged object is removed from the cache,
        and fetched again where a remote has it.

        Args:
            out: Where it goes.
            md5: Name of its object in the cache.

        Returns:
            False if the object is nowhere.

        Raises:
            UserError: The object was damaged, and no remote has it.

        """
        repo = self._open()
        odb = repo.cache.local
        with _explained("the workspace", out), guarded(_cache(repo)):
            try:
                objects.verify(odb, md5)
            except (FileNotFoundError, objects.Damaged) as reason:
                if not self._pull(repo, md5):
                    if isinstance(reason, FileNotFoundError):
                        return False
                    raise UserError(
                        f"{reason}, so '{out}' cannot be restored from it; the object was removed: "
                        "run again to make it anew, or `dvc pull` it from a remote"
                    ) from None
            objects.touch(odb, md5)
            objects.checkout(odb, md5, out.absolute())
        return True

    def write_lock(
        self,
        entries: Sequence[LockEntry],
        *,
        known: Mapping[Path, StoredObject] | None = None,
        keep: Collection[str] | None = None,
        folder: Path | None = None,
    ) -> bool:
        """Write the entries of some stages into `dvc.lock`, all at once.

        Args:
            entries: One for each of these stages.
            known: What is known of files, by path; others are read.
            keep: Names of the other stages that stay; None keeps all of them as they are.
            folder: Where the file lies, if not beside the recipe.

        Returns:
            False if nothing changed.

        """
        facts = {os.path.realpath(path): stored for path, stored in (known or {}).items()}
        blocks = {entry.name: self._entry(entry, facts) for entry in entries}
        with self._locked():
            return lockfile.replace((folder or self._dir) / LOCK_FILE, blocks, keep)

    def status(self) -> list[str]:
        """What stock `dvc status` reports for this recipe; empty when it is clean."""
        from dvc.exceptions import DvcException
        from dvc.repo import Repo

        self._open()
        try:
            with self._locking, Repo(str(self._root), _wait_for_lock=True) as repo:
                report = repo.status(targets=[str(self._dir / "dvc.yaml")])
        except DvcException as error:
            raise UserError(f"dvc cannot read {self._dir}: {error}") from None
        return [
            f"{address.rpartition(':')[2]}: {line}"
            for address, items in report.items()
            for line in _lines(items)
        ]

    def _open(self) -> Any:
        """The repository, opened once; dvc is imported here and nowhere earlier."""
        with self._opening:
            if self._repo is None:
                self._repo = open_repo(self._root)
        return self._repo

    def _pull(self, repo: Any, md5: CacheName) -> bool:
        """Fetch an object from the default remote; False if there is none, or not this object."""
        from dvc.config import NoRemoteError
        from dvc_data.hashfile.hash_info import HashInfo

        odb = repo.cache.local
        try:
            repo.cloud.pull([HashInfo("md5", md5)])
            if md5.endswith(".dir"):
                # DVC takes a directory whose list is in the cache for complete; ours may have lost
                # a damaged file.
                files = set(objects.tree(odb, md5).values())
                repo.cloud.pull([HashInfo("md5", oid) for oid in files])
            objects.verify(odb, md5)
        except (NoRemoteError, FileNotFoundError, objects.Damaged):
            return False
        except remote_failures() as error:
            raise UserError(f"the DVC remote cannot be read: {error}") from None
        return True

    def _entry(self, entry: LockEntry, known: Mapping[str, StoredObject]) -> dict[str, object]:
        """One stage's entry with sizes and hashes, in DVC's order."""
        fields: dict[str, object] = {"cmd": entry.cmd}
        if entry.deps:
            fields["deps"] = [self._file(path, known) for path in sorted(entry.deps)]
        if entry.params:
            values = {key: entry.params[key] for key in sorted(entry.params)}
            fields["params"] = {"params.yaml": values}
        if entry.outs:
            fields["outs"] = [self._file(path, known) for path in sorted(entry.outs)]
        return fields

    def _file(self, relative: str, known: Mapping[str, StoredObject]) -> dict[str, object]:
        path = os.path.realpath(self._dir / relative)
        stored = known.get(path) or self.describe(Path(path))
        return {"path": relative, **stored.fields()}

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold DVC's repository lock, so that no stock `dvc` command reads between our writes."""
        from dvc.lock import make_lock

        repo = self._open()
        lock = make_lock(
            str(Path(repo.tmp_dir) / "lock"),
            tmp_dir=repo.tmp_dir,
            hardlink_lock=repo.config["core"].get("hardlink_lock", False),
            wait=True,
        )
        with self._locking, lock:
            yield


def _lost(repo: Any, remote: Any, md5: CacheName) -> set[str]:
    """Files of an object of the remote that neither the remote has nor the cache."""
    if not md5.endswith(".dir"):
        return set()
    cache = repo.cache.local
    files = set(objects.tree(remote, md5).values())
    wanted = {oid for oid in files if not Path(cache.oid_to_path(oid)).is_file()}
    return wanted - set(remote.oids_exist(sorted(wanted))) if wanted else set()


def _cache(repo: Any) -> Path:
    """The folder of the cache, above its `files/md5`."""
    return Path(repo.cache.local.path).parents[1]


def _stored(meta: Any, obj: Any) -> StoredObject:
    num_files = meta.nfiles if meta.isdir else None
    return StoredObject(obj.oid, meta.size or 0, num_files, bool(meta.isexec))


@contextlib.contextmanager
def _explained(what: str, where: object) -> Iterator[None]:
    """Turn a full disk or a missing permission into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REASONS:
            raise
        raise UserError(f"cannot write {what} ({where}): {_REASONS[error.errno]}") from error


def _lines(items: Sequence[Any]) -> Iterator[str]:
    """One line for each thing that `dvc status` found in a stage."""
    for item in items:
        if isinstance(item, str):
            yield item
            continue
        for kind, changes in item.items():
            yield from (f"{kind}: {path} {change}" for path, change in changes.items())
