"""The first-party code of a release, as an archive that it can be rebuilt from."""

import io
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from posttrain.pipeline.workspace import Workspace
from posttrain.publishing.release.contents import (
    ArchiveContents,
    MemoryContents,
    write_archive,
    write_folder,
)
from posttrain.stage.installed import SHARED, home

_LEFT_OUT = (".pyc", ".pyo", ".so")
# Beside the packages: what a rebuild or a reader of the code needs.
_FILES = ("pyproject.toml", "constraints.txt", ".dvcignore", ".gitignore")


def code_archive(workspace: Workspace, read: Collection[Path] = ()) -> bytes:
    """Put the project's packages and this library into one deterministic tar.

    Args:
        workspace: Of the project.
        read: Files below its root that its stages read, in packages or not.

    Returns:
        The archive.

    """
    files = {name: path.read_bytes() for name, path in _files_of_project(workspace)}
    files |= {path.relative_to(workspace.root).as_posix(): path.read_bytes() for path in read}
    target = io.BytesIO()
    write_archive(MemoryContents(files), target)
    return target.getvalue()


def unpack_code(archive: bytes, folder: Path) -> None:
    """Write the files of a code archive below `folder`, and none elsewhere."""
    write_folder(ArchiveContents(archive), folder)


def holds_library(archive: bytes) -> bool:
    """Return whether a code archive holds this library, without which nothing can be rebuilt."""
    return "posttrain/__init__.py" in ArchiveContents(archive).names()


def _files_of_project(workspace: Workspace) -> Iterator[tuple[str, Path]]:
    for package in workspace.packages():
        own = workspace.root / package
        module = own.with_suffix(".py")
        if module.is_file() and not own.is_dir():
            yield module.name, module
            continue
        if not own.is_dir() or package in SHARED:
            yield from _code(package, home() / package, besides=own)
        # In a checkout of this library its packages are the project's own; the shared ones of
        # them were all given above.
        if own.is_dir() and not (package in SHARED and own == home() / package):
            yield from _code(package, own)
    for name in _FILES:
        if (workspace.root / name).is_file():
            yield name, workspace.root / name


def _code(package: str, folder: Path, besides: Path | None = None) -> Iterator[tuple[str, Path]]:
    """Files of a package; without the modules that the project's own of that name hide."""
    hidden = {path.name for path in besides.iterdir()} if besides and besides.is_dir() else set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        for path in (Path(parent, name) for name in sorted(files)):
            relative = path.relative_to(folder)
            is_hidden = besides != folder and relative.parts[0] in hidden
            if not path.name.endswith(_LEFT_OUT) and not is_hidden:
                yield f"{package}/{relative.as_posix()}", path
