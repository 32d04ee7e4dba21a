"""Files replaced in one step, where who reads sees the old or the new one, and where files lie."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a place to write to that takes the place of a file by rename at the end of the block.

    An error, a kill or a full disk leaves the old file as it was; several writers do not meet.

    Args:
        path: The file that is replaced, or made.

    Yields:
        A file beside it.

    """
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Force a file, or the entries of a folder, to disk.

    Args:
        path: The file or folder.

    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def nearest_existing(path: Path) -> Path:
    """Find what a path lies in, or will once its folders are made.

    Args:
        path: There or not.

    Returns:
        The path itself, or the nearest folder above it that is there.

    """
    return next(each for each in (path, *path.parents) if each.exists())
