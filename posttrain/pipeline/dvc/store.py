"""Artifacts in the DVC cache, through DVC's own object database."""

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.errors import UserError
from posttrain.pipeline.dvc import lockfile
from posttrain.pipeline.dvc.records import LockEntry, StoredObject


class DvcStore:
    """The cache and the lock file of one recipe.

    `recipe_dir` holds `dvc.yaml`, `params.yaml` and `dvc.lock`; it is the root of the repository or
    a directory below it. Nothing is opened before the first call that needs it. Threads may share
    one store, and processes may store at the same time: objects are named by their content and
    appear by rename; only the lock file is written under DVC's repository lock, which is waited for.
    """

    def __init__(self, repo_root: Path, recipe_dir: Path) -> None:
        self._root = repo_root.resolve()
        self._dir = recipe_dir.resolve()
        self._opening = threading.Lock()
        self._locking = threading.Lock()
        self._repo: Any = None
        self._seen: dict[tuple[str, int, int, int], StoredObject] = {}

    def warm(self) -> None:
        """Import dvc and open the repository now: a third of a second better spent while waiting."""
        self._open()

    def store(self, outs: Sequence[Path]) -> dict[Path, StoredObject]:
        """Copy artifacts into the cache; an object that is there but damaged is replaced."""
        repo = self._open()
        with _explained("the DVC cache", repo.cache.local.path):
            return {out: self._store(repo, out) for out in outs}

    def describe(self, path: Path) -> StoredObject:
        """What DVC says of a file or directory, without storing it; unchanged files are not re-read."""
        stat = path.stat()
        signature = (str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if path.is_dir():
            return self._build(self._open(), path)[0]
        if signature not in self._seen:
            self._seen[signature] = self._build(self._open(), path)[0]
        return self._seen[signature]

    def has(self, md5: str) -> bool:
        """Whether the cache holds an object, and every file of it if it is a directory."""
        try:
            return all(path.is_file() for path in self._object_paths(self._open(), md5))
        except (FileNotFoundError, _Damaged):
            return False

    def restore(self, out: Path, md5: str) -> bool:
        """Put an artifact back from the cache, or from the default remote if there is one.

        Every byte is checked against its hash first. A damaged object is removed from the cache,
        and fetched again where a remote has it. Returns False if the object is nowhere.
        """
        repo = self._open()
        with _explained("the workspace", out):
            try:
                self._verify(repo, md5)
            except (FileNotFoundError, _Damaged) as damage:
                if not self._pull(repo, md5):
                    if isinstance(damage, FileNotFoundError):
                        return False
                    raise UserError(_advice(damage, out)) from None
                self._verify(repo, md5)
            self._checkout(repo, out, md5)
        return True

    def write_lock(
        self,
        entries: Sequence[LockEntry],
        *,
        known: Mapping[Path, StoredObject] | None = None,
        keep: Collection[str] | None = None,
    ) -> bool:
        """Write the entries of these stages into `dvc.lock`, all at once; False if nothing changed.

        Files are described from `known` (absolute paths) where it names them. Entries of other
        stages stay as they are, or only those in `keep` do, if it is given.
        """
        facts = known or {}
        blocks = {entry.name: self._entry(entry, facts) for entry in entries}
        with self._locked():
            return lockfile.replace(self._dir / "dvc.lock", blocks, keep)

    def status(self) -> list[str]:
        """What stock `dvc status` reports for this recipe; empty when it is clean."""
        from dvc.exceptions import DvcException
        from dvc.repo import Repo

        try:
            with self._locking, Repo(str(self._root), _wait_for_lock=True) as repo:
                report = repo.status(targets=[str(self._dir / "dvc.yaml")])
        except DvcException as error:
            raise UserError(f"dvc cannot read {self._dir}: {error}") from None
        return [
            f"{address.rpartition(':')[2]}: {line}"
            for address, items in report.items()
            for line in _flat(items)
        ]

    def _open(self) -> Any:
        """The repository, opened once; dvc is imported here and nowhere earlier."""
        with self._opening:
            if self._repo is None:
                self._repo = _open_repo(self._root)
        return self._repo

    def _build(self, repo: Any, path: Path) -> tuple[StoredObject, Any]:
        from dvc_data.hashfile.build import build

        _, meta, obj = build(
            repo.cache.local, str(path), repo.fs, "md5", ignore=repo.dvcignore, dry_run=True
        )
        num_files = meta.nfiles if meta.isdir else None
        return StoredObject(obj.oid, meta.size or 0, num_files, bool(meta.isexec)), obj

    def _store(self, repo: Any, out: Path) -> StoredObject:
        odb = repo.cache.local
        stored, obj = self._build(repo, out)
        files = {str(out): stored.md5}
        if stored.num_files is not None:
            files = {str(out.joinpath(*parts)): entry.value for parts, _, entry in obj}
        for oid in set(files.values()):
            _drop_damaged(odb, oid)
        odb.add(list(files), repo.fs, list(files.values()), hardlink=_hardlinks(odb))
        if stored.num_files is not None:
            # The list of a directory goes in last: where it is, its files are too.
            _drop_damaged(odb, stored.md5)
            odb.add(obj.path, obj.fs, obj.oid)
        return stored

    def _object_paths(self, repo: Any, md5: str) -> list[Path]:
        """Cache files of an object, a directory's list first."""
        odb = repo.cache.local
        first = Path(odb.oid_to_path(md5))
        if not md5.endswith(".dir"):
            return [first]
        return [first, *(Path(odb.oid_to_path(oid)) for oid in _tree(odb, md5).values())]

    def _verify(self, repo: Any, md5: str) -> None:
        """Re-hash an object and all its files; raises, and removes the first that is damaged."""
        odb = repo.cache.local
        _check(odb, md5)
        for oid in set(_tree(odb, md5).values()) if md5.endswith(".dir") else ():
            _check(odb, oid)

    def _pull(self, repo: Any, md5: str) -> bool:
        """Fetch an object from the default remote; False if there is none or it lacks the object."""
        from dvc.config import NoRemoteError
        from dvc_data.hashfile.hash_info import HashInfo

        with contextlib.suppress(NoRemoteError, FileNotFoundError):
            result = repo.cloud.pull([HashInfo("md5", md5)])
            return not result.failed and self.has(md5)
        return False

    def _checkout(self, repo: Any, out: Path, md5: str) -> None:
        """Link or copy an object beside `out`, then rename: `out` is whole or not there at all."""
        odb = repo.cache.local
        files = {"": md5} if not md5.endswith(".dir") else _tree(odb, md5)
        temporary = out.with_name(f".{out.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            for relative, oid in files.items():
                target = temporary / relative if relative else temporary
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(odb, oid, target)
            _swap(temporary, out)
        finally:
            _remove(temporary)

    def _entry(self, entry: LockEntry, known: Mapping[Path, StoredObject]) -> dict[str, object]:
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

    def _file(self, relative: str, known: Mapping[Path, StoredObject]) -> dict[str, object]:
        path = Path(os.path.normpath(self._dir / relative))
        stored = known.get(path) or self.describe(path)
        return {"path": relative, **stored.fields()}

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold DVC's repository lock, so that no stock `dvc` command reads half of our work."""
        from dvc.lock import make_lock

        repo = self._open()
        config = repo.config["core"]
        lock = make_lock(
            str(Path(repo.tmp_dir) / "lock"),
            tmp_dir=repo.tmp_dir,
            hardlink_lock=config.get("hardlink_lock", False),
            wait=True,
        )
        with self._locking, lock:
            yield


class _Damaged(Exception):
    """A cache object whose bytes are not what its name says."""


def _advice(damage: BaseException, out: Path) -> str:
    return f"{damage}, so '{out}' cannot be restored; it was removed: run again to make it anew"


def _open_repo(root: Path) -> Any:
    """Open the DVC repository at `root`, or say what is missing."""
    from dvc.exceptions import DvcException, NotDvcRepoError
    from dvc.repo import Repo
    from dvc.scm import SCMError

    # dvc reports through logging what it also raises; without a handler it would reach the terminal.
    for name in ("dvc", "dvc_data", "dvc_objects"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    try:
        return Repo(str(root), _wait_for_lock=True)
    except NotDvcRepoError:
        raise UserError(f"{root} has no .dvc directory; restore it from git, or `dvc init`") from None
    except SCMError:
        raise UserError(f"{root} is not in a git repository; run `git init` there first") from None
    except DvcException as error:
        raise UserError(f"dvc cannot open {root}: {error}") from None


@contextlib.contextmanager
def _explained(what: str, where: object) -> Iterator[None]:
    """Turn a full disk or a missing permission into a sentence."""
    import errno

    reasons = {
        errno.ENOSPC: "no space left; free some, or move the cache with `dvc cache dir`",
        errno.EDQUOT: "the disk quota is used up; free some, or move the cache with `dvc cache dir`",
        errno.EACCES: "permission denied; make it writable, or move the cache with `dvc cache dir`",
        errno.EPERM: "permission denied; make it writable, or move the cache with `dvc cache dir`",
        errno.EROFS: "it is read-only; make it writable, or move the cache with `dvc cache dir`",
    }
    try:
        yield
    except OSError as error:
        if error.errno not in reasons:
            raise
        raise UserError(f"cannot write {what} ({where}): {reasons[error.errno]}") from error


def _hardlinks(odb: Any) -> bool:
    return bool(odb.cache_types) and odb.cache_types[0] == "hardlink"


def _hash(path: Path) -> str:
    """The MD5 of a file's bytes as they are now, whatever any cache of hashes remembers."""
    import hashlib

    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()


def _check(odb: Any, oid: str) -> None:
    path = Path(odb.oid_to_path(oid))
    if _hash(path) != oid.removesuffix(".dir"):
        with contextlib.suppress(OSError):
            path.unlink()
        raise _Damaged(f"the cache object {path} is damaged: its bytes do not match its name")


def _drop_damaged(odb: Any, oid: str) -> None:
    """Remove a damaged object, which DVC would otherwise keep for its name's sake."""
    with contextlib.suppress(FileNotFoundError, _Damaged):
        _check(odb, oid)


def _tree(odb: Any, md5: str) -> dict[str, str]:
    """Relative path -> object of each file of a directory."""
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree
    from dvc_objects.errors import ObjectFormatError

    try:
        tree = Tree.load(odb, HashInfo("md5", md5))
    except ObjectFormatError:
        raise _Damaged(f"the cache object {odb.oid_to_path(md5)} is damaged") from None
    if any(".." in parts or "" in parts for parts, _, _ in tree):
        raise _Damaged(f"the cache object {odb.oid_to_path(md5)} names files outside its directory")
    return {"/".join(parts): entry.value for parts, _, entry in tree}


def _link(odb: Any, oid: str, target: Path) -> None:
    """Bring one object to `target` by the first link type of the cache that works here."""
    from dvc_objects.fs import generic

    source = odb.oid_to_path(oid)
    generic.transfer(odb.fs, source, odb.fs, str(target), links=list(odb.cache_types))


def _swap(temporary: Path, out: Path) -> None:
    """Replace `out`, file or directory, by `temporary`."""
    if temporary.is_dir() or out.is_dir():
        _remove(out)
    temporary.replace(out)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _flat(items: Sequence[Any]) -> Iterator[str]:
    """One line for each thing that `dvc status` found in a stage."""
    for item in items:
        if isinstance(item, str):
            yield item
            continue
        for kind, changes in item.items():
            yield from (f"{kind}: {path} {change}" for path, change in changes.items())
