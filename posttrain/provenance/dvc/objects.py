"""Objects of the DVC cache: named by the MD5 of their bytes, and checked before they are used.

`odb` is DVC's own object database throughout. DVC trusts an object for its name and its read-only
mode; here every object is hashed again before its bytes are used.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posttrain.stage.hashing import md5_of_file


class Damaged(Exception):
    """A cache object whose bytes are not what its name says; it is no longer in the cache."""


def build(repo: Any, path: Path) -> tuple[Any, Any]:
    """Hash a file or directory, storing nothing.

    Args:
        repo: DVC's repository; gives cache, file system and what is ignored.
        path: File or directory.

    Returns:
        DVC's description of it; and the object, with its name in the cache.

    """
    from dvc_data.hashfile.build import build as build_object

    odb = repo.cache.local
    # Below an ignored folder, where claims are run, every file would be left out of a directory.
    inside = repo.dvcignore.is_ignored_dir(str(path))
    ignore = None if inside else repo.dvcignore
    _, meta, obj = build_object(odb, str(path), repo.fs, "md5", ignore=ignore, dry_run=True)
    return meta, obj


def add(odb: Any, fs: Any, path: Path, obj: Any) -> None:
    """Copy a hashed file or directory into the cache, replacing objects that are damaged.

    Args:
        odb: DVC's local cache.
        fs: File system that the files lie on.
        path: What was hashed.
        obj: Its object, from `build`.

    """
    from dvc_data.hashfile.tree import Tree

    if isinstance(obj, Tree):
        files = {str(path.joinpath(*parts)): entry.value for parts, _, entry in obj}
    else:
        files = {str(path): obj.oid}
    _add(odb, fs, files)
    if isinstance(obj, Tree):
        # The list of a directory goes in last: where it is, its files are too.
        _add(odb, obj.fs, {obj.path: obj.oid})


def _add(odb: Any, fs: Any, files: dict[str, str]) -> None:
    for oid in set(files.values()):
        with contextlib.suppress(FileNotFoundError, Damaged):
            check(odb, oid)
            _used(odb, oid)
    # The first of the cache's link types that works is used; a hard link saves the second copy.
    hardlink = next(iter(odb.cache_types), None) == "hardlink"
    odb.add(list(files), fs, list(files.values()), hardlink=hardlink)


def verify(odb: Any, md5: str) -> None:
    """Hash an object and all its files.

    Args:
        odb: DVC's local cache.
        md5: Name of the object; it ends in ``.dir`` of a directory.

    """
    check(odb, md5)
    for oid in sorted(set(tree(odb, md5).values()) - {md5}):
        check(odb, oid)


def touch(odb: Any, md5: str) -> None:
    """Show that an object and its files are in use: what changed just now is not cleared away.

    Args:
        odb: DVC's local cache.
        md5: Name of the object.

    """
    for oid in {md5, *tree(odb, md5).values()}:
        _used(odb, oid)


def _used(odb: Any, oid: str) -> None:
    with contextlib.suppress(OSError):
        os.utime(odb.oid_to_path(oid))


def check(odb: Any, oid: str) -> None:
    """Hash one object's bytes as they are now, whatever DVC's memory of hashes says.

    Args:
        odb: DVC's local cache.
        oid: Name of the object; the list of files of a ``.dir`` counts, not the files.

    Raises:
        Damaged: The bytes have another hash; the object is removed, so that it can be fetched
            again.

    """
    path = Path(odb.oid_to_path(oid))
    actual = md5_of_file(path)
    if actual != oid.removesuffix(".dir"):
        with contextlib.suppress(OSError):
            path.unlink()
        raise Damaged(f"the cache object {path} is damaged (its bytes hash to {actual})")


def tree(odb: Any, md5: str) -> dict[str, str]:
    """List the files of an object.

    Args:
        odb: DVC's local cache.
        md5: Name of the object.

    Returns:
        Name of each file's object by relative path; an object that is one file is its own, at no
        path.

    Raises:
        Damaged: It is no list of files, or names one outside its directory.

    """
    if not md5.endswith(".dir"):
        return {"": md5}
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree
    from dvc_objects.errors import ObjectFormatError

    try:
        listed = Tree.load(odb, HashInfo("md5", md5))
    except ObjectFormatError:
        raise Damaged(f"the cache object {odb.oid_to_path(md5)} is not a list of files") from None
    # The list may come from a remote that others write to, and is about to be written by its names.
    if any(part in ("", "..") for parts, _, _ in listed for part in parts):
        raise Damaged(f"the cache object {odb.oid_to_path(md5)} names files outside its directory")
    return {"/".join(parts): entry.value for parts, _, entry in listed}


def missing(odb: Any, md5: str) -> Iterator[Path]:
    """Find cache files that an object needs and that are not there.

    Args:
        odb: DVC's local cache.
        md5: Name of the object.

    Yields:
        Where each should be; of a missing list of files the list alone.

    """
    first = Path(odb.oid_to_path(md5))
    if not first.is_file():
        yield first
    else:
        paths = (Path(odb.oid_to_path(oid)) for oid in tree(odb, md5).values())
        yield from (path for path in paths if not path.is_file())


def checkout(odb: Any, md5: str, out: Path) -> None:
    """Link or copy an object beside `out`, then rename: `out` is whole or not there at all.

    Args:
        odb: DVC's local cache.
        md5: Name of the object, all of whose files are there.
        out: What it becomes, replacing what is there.

    """
    files = tree(odb, md5)
    # In the same folder, as a rename is atomic within one file system only; named by thread, too,
    # as stages of one process check out at the same time.
    temporary = out.with_name(f".{out.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        for relative, oid in files.items():
            target = temporary / relative if relative else temporary
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(odb, oid, target)
        if md5.endswith(".dir"):
            temporary.mkdir(parents=True, exist_ok=True)
        if temporary.is_dir() or out.is_dir():
            _remove(out)
        temporary.replace(out)
    finally:
        _remove(temporary)


def _link(odb: Any, oid: str, target: Path) -> None:
    """Bring one object to `target` by the first link type of the cache that works here."""
    from dvc_objects.fs import generic

    source = odb.oid_to_path(oid)
    generic.transfer(odb.fs, source, odb.fs, str(target), links=list(odb.cache_types))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
