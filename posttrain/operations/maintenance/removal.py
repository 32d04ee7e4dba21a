"""Remove what was decided; a kill at any moment leaves a sound cache, and the next goes on."""

import contextlib
import json
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from posttrain.operations.maintenance.cache import Objects
from posttrain.provenance.dvc.guard import guarded
from posttrain.stage.files import replacing

_JOURNAL = "posttrain-gc.json"
_CHUNK = 64


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
    with replacing(cache / _JOURNAL) as partial:
        partial.write_text(json.dumps(listed), encoding="utf-8")
    freed = 0
    for chunk in _chunks([oid for oid in listed if oid.endswith(".dir")]):
        freed += _remove(cache, objects, chunk, progress)
    for chunk in _chunks([oid for oid in listed if not oid.endswith(".dir")]):
        freed += _remove(cache, objects, chunk, progress)
    (cache / _JOURNAL).unlink(missing_ok=True)
    return freed


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
