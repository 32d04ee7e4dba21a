"""Find a release by what the user names: a folder, an archive, or a tag of this project."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from posttrain.provenance.ledger.location import project_root
from posttrain.publishing.release.contents import ArchiveContents, FolderContents, write_folder
from posttrain.publishing.release.names import FOLDER, Tag, parse_tag
from posttrain.publishing.release.tags import release_message
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import CacheName

# A place to look at, the release that it must be, and what is wrong with the pointer to it.
Located = tuple[Path, Tag | None, list[str]]


def located(target: str) -> list[Located]:
    """What `target` means: for a tag its folder and its archive, each checked against the tag."""
    path = Path(target)
    if path.exists() or "@" not in target:
        return [(path, None, [])]
    tag = parse_tag(target)
    root = project_root(Path.cwd())
    said = release_message(root, tag)
    archive = fetch_archive(root, tag, said)
    digest = FolderContents(archive.parent).sha256(archive.name)
    wrong = (
        []
        if digest == said.get("archive-sha256")
        else [f"{archive.name}: it is not the archive that the git tag {tag} names"]
    )
    folder = tag.folder(root)
    if not folder.is_dir() and not wrong:
        _unpack(archive, folder)
    return [(archive, tag, wrong), *([(folder, tag, [])] if folder.is_dir() else [])]


def fetch_archive(root: Path, tag: Tag, said: Mapping[str, str]) -> Path:
    """The archive in its place, brought from the DVC cache or remote where it is not."""
    from posttrain.provenance.dvc import DvcStore

    archive = tag.archive(root)
    if archive.is_file():
        return archive
    md5 = CacheName(said.get("archive-md5", ""))
    ignored_by_git(root)
    archive.parent.mkdir(parents=True, exist_ok=True)
    if not md5 or not DvcStore(root, root).restore(archive, md5):
        raise UserError(
            f"the archive of {tag} is neither in {archive.parent} nor in the DVC cache or its "
            "default remote; ask whoever made it to push it there, or name a copy"
        )
    return archive


def ignored_by_git(root: Path) -> None:
    """Releases are large and tracked by tags: git must not list them."""
    ignore = root / FOLDER / ".gitignore"
    if not ignore.exists():
        ignore.parent.mkdir(exist_ok=True)
        ignore.write_text("*\n", encoding="utf-8")


def _unpack(archive: Path, folder: Path) -> None:
    """All of a release's files in their place at once, so that a kill leaves no part of them."""
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        write_folder(ArchiveContents(archive), partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
