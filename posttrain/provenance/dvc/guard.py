"""Who uses the cache and who clears it do not meet: one lock for each cache, shared or alone."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from posttrain.stage.hashing import sha256_of

_LOCK = "posttrain.lock"
_PROJECTS = "posttrain-projects"


@contextlib.contextmanager
def guarded(cache: Path, *, alone: bool = False) -> Iterator[None]:
    """Hold the lock of a cache while the context is open, together with others or alone.

    A cache that cannot be written cannot be cleared either, and needs no lock.

    Args:
        cache: Folder of the cache.
        alone: True waits until nobody else holds it, and keeps others out.

    Yields:
        Nothing.

    """
    # Windows has none, and who only reads there holds nothing.
    import fcntl

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            cache.mkdir(parents=True, exist_ok=True)
            handle = stack.enter_context((cache / _LOCK).open("w"))
            fcntl.flock(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def register(cache: Path, root: Path) -> None:
    """Note that a project keeps objects in a cache, which may serve several.

    Args:
        cache: Root of DVC's cache.
        root: The project's root.

    """
    note = cache / _PROJECTS / sha256_of(str(root))[:16]
    with contextlib.suppress(OSError):
        if not note.exists():
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(str(root), encoding="utf-8")


def projects(cache: Path) -> list[Path]:
    """The projects that were noted and are still there."""
    notes = sorted((cache / _PROJECTS).glob("*"))
    roots = [Path(note.read_text(encoding="utf-8")) for note in notes]
    return [root for root in roots if (root / ".dvc").is_dir()]
