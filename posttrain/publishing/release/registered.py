"""Which releases there are, how to find one, and what differs between two."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from posttrain.provenance.ledger.location import project_root
from posttrain.publishing.release import tags
from posttrain.publishing.release.contents import (
    EVIDENCE,
    ArchiveContents,
    FolderContents,
    open_contents,
    write_folder,
)
from posttrain.publishing.release.names import FOLDER, Tag, parse_tag
from posttrain.publishing.release.statements import last_statement
from posttrain.publishing.release.verify import said_about
from posttrain.stage.errors import UserError, nearest
from posttrain.stage.hashing import CacheName, sha256_of_file

# A place to look at, the release that it must be, and what is wrong with the pointer to it.
Located = tuple[Path, Tag | None, list[str]]


@dataclass(frozen=True)
class Registered:
    """A release as git knows it: its commit, when it was made, and where it was promoted to."""

    tag: Tag
    commit: str
    environments: tuple[str, ...]
    findings: tuple[str, ...] = ()
    """What its tag says otherwise than the release, where that lies here."""


def registered(root: Path, name: str | None = None) -> list[Registered]:
    """Every release, newest version of each name first."""
    last = {(each.name, each.environment): each.version for each in tags.promotions(root)}
    found = [
        Registered(
            tag,
            commit,
            tuple(env for (of, env), version in last.items() if Tag(of, version) == tag),
            tuple(tag_findings(root, tag, place)) if (place := _place(root, tag)) else (),
        )
        for tag, commit in tags.release_tags(root).items()
        if name in (None, tag.name)
    ]
    newest_first = sorted(found, key=lambda each: each.tag.version, reverse=True)
    return sorted(newest_first, key=lambda each: each.tag.name)


def _place(root: Path, tag: Tag) -> Path | None:
    """Where a release lies in the project, if it does."""
    places = tag.folder(root), tag.archive(root)
    return next((each for each in places if each.exists()), None)


def find_release(root: Path, target: str) -> Tag:
    """The release that `NAME@VERSION`, `NAME#ENVIRONMENT` or `NAME` (its newest) means."""
    known = tags.release_tags(root)
    name, hash_, environment = target.partition("#")
    if hash_:
        now = tags.current(root, name, environment)
        if now is None:
            raise UserError(f"{name} was never in '{environment}'; see posttrain release list")
        return Tag(name, now.version)
    if "@" in target:
        tag = parse_tag(target)
        if tag not in known:
            hint = nearest(str(tag), [str(each) for each in known])
            raise UserError(f"there is no release {tag}{hint or '; see posttrain release list'}")
        return tag
    versions = [tag for tag in known if tag.name == name]
    if not versions:
        hint = nearest(name, {tag.name for tag in known})
        raise UserError(f"there is no release of '{name}'{hint or '; see posttrain release list'}")
    return max(versions, key=lambda tag: tag.version)


def release_folder(root: Path, tag: Tag) -> Path:
    """The folder of a release, unpacked from its archive where that is all there is."""
    folder = tag.folder(root)
    if not folder.is_dir():
        located(str(tag))
    if not folder.is_dir():
        raise UserError(f"{folder} is not there; posttrain release verify {tag} says why")
    return folder


def located(target: str) -> list[Located]:
    """What `target` means: for a tag its folder and its archive, each checked against the tag."""
    path = Path(target)
    if path.exists() or "@" not in target:
        return [(path, None, [])]
    tag = parse_tag(target)
    root = project_root(Path.cwd())
    said = tags.release_message(root, tag)
    archive = _fetch_archive(root, tag, said)
    wrong = []
    if sha256_of_file(archive) != said.get("archive-sha256"):
        wrong.append(f"{archive.name}: it is not the archive that the git tag {tag} names")
    else:
        wrong += tag_findings(root, tag, archive)
    folder = tag.folder(root)
    if not folder.is_dir() and not wrong:
        _unpack(archive, folder)
    unpacked = [(folder, tag, tag_findings(root, tag, folder))] if folder.is_dir() else []
    return [(archive, tag, wrong), *unpacked]


def tag_findings(root: Path, tag: Tag, path: Path) -> list[str]:
    """Return what the git tag of a release says otherwise than the last claim does.

    Args:
        root: The project.
        tag: The release.
        path: Its folder or archive, whose signatures are not checked here.

    Returns:
        One sentence for each: the tag may have been moved, or made by hand.

    """
    said = tags.release_message(root, tag)
    try:
        digest, statement = last_statement(open_contents(path))
        about = statement["predicate"]
        claimed = {
            "commit": str(about["commit"]),
            "statement": digest,
            "policy": str(about["policy"]["sha256"]),
        }
    except UserError as error:
        return [str(error)]
    except (KeyError, TypeError):
        return [f"{path.name}: its last claim is about no release"]
    return [
        f"the git tag {tag}: its {name} is {said.get(name, 'not stated')[:12]}, and the claims of "
        f"{path.name} say {ascii(value[:12])}"
        for name, value in claimed.items()
        if said.get(name) != value
    ]


def _fetch_archive(root: Path, tag: Tag, said: Mapping[str, str]) -> Path:
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


def differences(first: Path, second: Path) -> list[tuple[str, str, str]]:
    """What differs between two releases: a name, and how each of them has it."""
    before, after = (_facts(FolderContents(folder)) for folder in (first, second))
    return [
        (name, before.get(name, "-"), after.get(name, "-"))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _facts(contents: FolderContents) -> dict[str, str]:
    """What people compare: commit, parameters, artifacts, figures, packages, inputs."""
    about = said_about(contents)
    facts = {"commit": str(about["commit"])[:12], "policy": str(about["policy"]["sha256"])[:12]}
    data = contents.evidence("data")
    for each in data["artifacts"]:
        facts[f"artifact {each['path']}"] = str(each["digest"])[:12]
    for each in data["inputs"]:
        named = each.get("license", each.get("licence"))
        facts[f"input {each['name']}"] = f"{(each['digest'] or '-')[:12]} {named}"
    metrics = contents.evidence("metrics")
    for name, value in metrics["evaluation"].items():
        facts[f"metric {name}"] = f"{value['value']:.4f} ({value['low']:.4f}..{value['high']:.4f})"
    for name, package in contents.evidence("environment")["packages"].items():
        facts[f"package {name}"] = str(package["version"])
    facts.update(_parameters(contents))
    return facts


def _parameters(contents: FolderContents) -> dict[str, str]:
    from ruamel.yaml import YAML

    params = YAML(typ="safe").load(contents.read(f"{EVIDENCE}/params.yaml"))
    found = {}
    for section, values in params.items():
        for name, value in values.items() if isinstance(values, Mapping) else [("", values)]:
            found[f"parameter {section}.{name}".rstrip(".")] = json.dumps(value, default=str)
    return found
