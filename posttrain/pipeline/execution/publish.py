"""Put verified outputs in their place by rename, so that half of one is never seen."""

import errno
import shutil
from collections.abc import Mapping
from pathlib import Path

from posttrain.stage.errors import UserError
from posttrain.stage.files import flush


def prepare(staging: Path, names: Mapping[str, Path]) -> dict[str, Path]:
    """Make an empty staging folder; return where each output is to be written in it."""
    if staging.exists():
        shutil.rmtree(staging)
    try:
        staging.mkdir(parents=True)
    except PermissionError:
        raise UserError(f"cannot write to {staging.parent}: the workspace is read-only") from None
    return {name: staging / final.name for name, final in names.items()}


def publish(staged: Mapping[str, Path], final: Mapping[str, Path]) -> None:
    """Move every staged output to its final path; each move is one rename on one file system.

    A file replaces its predecessor atomically. A directory cannot, so the old one is renamed
    aside first: a crash in between leaves the output missing, never mixed, and the next run
    makes it again.
    """
    for name, source in staged.items():
        try:
            _put(source, final[name])
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise UserError(
                f"no space left on the disk of {final[name].parent}; free some, then run again"
            ) from error


def discard(staging: Path) -> None:
    """Remove a staging folder and whatever a stage left in it."""
    shutil.rmtree(staging, ignore_errors=True)


def _put(source: Path, target: Path) -> None:
    """Move one output, its bytes safely on the disk before its name is."""
    _sync(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink():
        raise UserError(
            f"{target} is a symbolic link; remove it so that the output can be put there"
        )
    if target.is_dir():
        target.rename(source.with_name(f"{source.name}.replaced"))
    source.rename(target)
    flush(target.parent)


def _sync(path: Path) -> None:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    for file in files:
        flush(file)
