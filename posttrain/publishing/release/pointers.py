"""Where releases are pointed to: files, git tags, MLflow, the ledger. They move together.

A change is noted before it is made, and its last step is atomic and decides: the ledger's record of
a release, the git tag of an environment. What fails, or what a killed command noted and did not
come to the end of, is taken back as a whole; taking back what was never made does nothing.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.provenance.actor import actor_at
from posttrain.provenance.git import revision_of
from posttrain.provenance.ledger import Ledger, Release
from posttrain.provenance.lineage.recalls import refuse_recalled
from posttrain.publishing.release import tags
from posttrain.publishing.release.names import Tag, Version, parse_tag
from posttrain.publishing.release.registry import Registry
from posttrain.stage.errors import UserError
from posttrain.stage.files import replacing


@dataclass(frozen=True)
class ReleaseStore:
    """A project and whoever mirrors its releases."""

    root: Path
    state: Path
    ledger: Ledger
    registry: Registry | None

    @property
    def journal(self) -> Path:
        """The note about a change that is being made."""
        return _journal(self.state)

    def mirror(self) -> Registry:
        """MLflow's registry, where a change that touched it has to be taken back."""
        if self.registry is None:
            raise UserError(
                "a command that was killed left a change in MLflow half-done; run this one with "
                "tracking on (unset POSTTRAIN_TRACKING), so that it can be taken back"
            )
        return self.registry


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """One command at a time: all of them share the journal."""
    from filelock import FileLock, Timeout

    try:
        with FileLock(state / "release.lock", timeout=10):
            yield
    except Timeout:
        raise UserError(
            "another release command is moving pointers; wait for it, then do this again"
        ) from None


def publish(store: ReleaseStore, staging: Path, release: Release, message: str) -> None:
    """Point everything to a finished release in a staging folder, or nothing.

    Args:
        store: Where.
        staging: Holds its `folder` and its `archive.tar`, which are moved to their place.
        release: What the ledger keeps of it.
        message: Of the git tag.

    """
    tag = parse_tag(release.tag)
    folder, archive = tag.folder(store.root), tag.archive(store.root)
    # What is taken back must be ours: nothing of it may be there before.
    for path in (folder, archive):
        if path.exists():
            raise UserError(f"{path} exists, but no release is known there; move it away")
    _refuse_tag(store, str(tag))
    assert release.git_commit is not None
    with _together(store, {"release": str(tag), "mirrored": store.registry is not None}):
        folder.parent.mkdir(parents=True, exist_ok=True)
        (staging / "folder").rename(folder)
        (staging / "archive.tar").rename(archive)
        if store.registry is not None:
            store.registry.register(
                tag.name, str(tag.version), folder.as_uri(), policy=_policy(release)
            )
        tags.write_tag(store.root, str(tag), release.git_commit, message)
        store.ledger.annotations.release(release)


def promote(store: ReleaseStore, tag: Tag, environment: str, reason: str) -> tags.Promotion:
    """Point `environment` to a release that was not recalled."""
    now = tags.current(store.root, tag.name, environment)
    if now is not None and now.version == tag.version:
        refuse_unknown_or_recalled(store, tag)
        raise UserError(
            f"{tag} is in {environment} already, since {now.tag}; there is nothing to do"
        )
    return _assign(store, tag, environment, reason, kind="promotion")


def rollback(store: ReleaseStore, tag: Tag, environment: str, reason: str) -> tags.Promotion:
    """Point `environment` back to a release that `rollback_target` named."""
    return _assign(store, tag, environment, reason, kind="rollback")


def rollback_target(root: Path, name: str, environment: str, to: Version | None = None) -> Tag:
    """Return the release that an environment had before, or the one of version `to`.

    Going back twice goes back two versions: a rollback takes the version that it left out of the
    history, and a promotion adds one, also one that was there before.

    Args:
        root: The project.
        name: Of the releases.
        environment: Which one is to be moved.
        to: The version that is asked for, if any.

    Returns:
        The release.

    Raises:
        UserError: There was none before, or tags of older versions do not tell which it was.

    """
    history = tags.promotions(root, name, environment)
    if not history:
        raise UserError(f"{name} was never in {environment}; see posttrain release list")
    if to is not None:
        return Tag(name, to)
    stack: list[Version] = []
    is_known = True
    for each in history:
        there = each.version in stack
        # Tags of older versions say in their reason, at most, that they went back.
        if each.kind == "rollback" or (not each.kind and there and each.reason == "rolled back"):
            # To the last time that it was there: what was there before that stays.
            while there and stack.pop() != each.version:
                pass
        elif not each.kind and there:
            stack, is_known = [], False
        stack.append(each.version)
    if len(stack) < 2:
        now = history[-1]
        known = "had no version" if is_known else "has no record that tells which version it had"
        raise UserError(
            f"{environment} {known} of {name} before {now.version}; name one with --to VERSION"
        )
    return Tag(name, stack[-2])


def _assign(
    store: ReleaseStore, tag: Tag, environment: str, reason: str, *, kind: str
) -> tags.Promotion:
    """Point an environment to a version: MLflow's alias and the git tag, both or neither."""
    refuse_unknown_or_recalled(store, tag)
    before = tags.current(store.root, tag.name, environment)
    ref = f"{tag.name}#{environment}#{before.number + 1 if before else 1}"
    _refuse_tag(store, ref)
    commit = tags.release_tags(store.root)[tag]
    message = (
        f"{tag.name} {tag.version} is in {environment}\n\n"
        f"version: {tag.version}\nkind: {kind}\nreason: {' '.join(reason.split())}\n"
    )
    if (actor := actor_at(store.root)) is not None:
        message += f"by: {actor}\n"
    registry = store.registry
    note: dict[str, Any] = {"promotion": ref, "mirrored": registry is not None}
    if registry is not None:
        registry.require(tag.name, str(tag.version))
        note["before"] = registry.assigned(tag.name, environment)
    with _together(store, note):
        if registry is not None:
            registry.assign(tag.name, environment, str(tag.version))
        after = before.when if before else 0.0
        tags.write_tag(store.root, ref, commit, message, after=after)
    moved = tags.current(store.root, tag.name, environment)
    assert moved is not None
    return moved


def mirror_again(root: Path, registry: Registry, ledger: Ledger) -> int:
    """Give MLflow, whose database was made anew, the releases that git knows and their aliases.

    Args:
        root: The project.
        ledger: Knows which policy a release is of.
        registry: Where; what it has already stays as it is.

    Returns:
        How many releases there are; none outside a git repository.

    """
    if revision_of(root).commit is None:
        return 0
    policies = {each.tag: _policy(each) for each in ledger.annotations.releases()}
    released = sorted(tags.release_tags(root), key=lambda tag: (tag.name, tag.version))
    for tag in released:
        if not registry.knows(tag.name, str(tag.version)):
            source, policy = tag.folder(root).as_uri(), policies.get(str(tag), "")
            registry.register(tag.name, str(tag.version), source, policy=policy)
    # Oldest first: of an environment's promotions the last one stays.
    for each in tags.promotions(root):
        registry.assign(each.name, each.environment, str(each.version))
    return len(released)


def _policy(release: Release) -> str:
    """The digest of what is released: the first of its members, before what was measured of it."""
    return release.members[0].digest if release.members else ""


def repair(store: ReleaseStore) -> str:
    """Take back what a killed command left half-done; called before anything else is changed.

    Only under `locked`: then whatever lies in a staging folder is of a command that is gone.

    Args:
        store: Where.

    Returns:
        What was taken back; empty where nothing was.

    """
    undone = _settle(store)
    for path in staging_folder(store.state).glob("*"):
        shutil.rmtree(path, ignore_errors=True)
    return undone


def is_pending(state: Path) -> bool:
    """Return whether a command is changing pointers, or was killed while it did."""
    return _journal(state).exists()


def staging_folder(state: Path) -> Path:
    """Where releases are written before they are anywhere."""
    return state / "staging-releases"


def _journal(state: Path) -> Path:
    return state / "release-pending.json"


@contextmanager
def _together(store: ReleaseStore, note: Mapping[str, Any]) -> Iterator[None]:
    """Note a change, make it, and take it back if it fails; a kill leaves the note."""
    with replacing(store.journal) as partial:
        partial.write_text(json.dumps(note), encoding="utf-8")
    try:
        yield
    finally:
        _settle(store)


def _settle(store: ReleaseStore) -> str:
    """Take back what the journal names, unless its last step happened; what it was."""
    try:
        note = json.loads(store.journal.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ""
    if isinstance(note, list):
        note = _note_of_0_1(store.root, note)
    undone = ""
    released = {release.tag for release in store.ledger.annotations.releases()}
    if "release" in note and note["release"] not in released:
        undone = f"the release {note['release']}"
        _unpublish(store, parse_tag(note["release"]), mirrored=note["mirrored"])
    if "promotion" in note and not tags.has_tag(store.root, note["promotion"]):
        undone = f"the promotion {note['promotion']}"
        name, environment, _ = note["promotion"].split("#")
        # A git that was killed may have left its lock.
        tags.delete_tag(store.root, note["promotion"])
        if note["mirrored"]:
            store.mirror().assign(name, environment, note["before"])
    store.journal.unlink()
    return undone


def _note_of_0_1(root: Path, steps: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The note of a command of 0.1, which noted its steps one by one, each before it was made.

    A release began with its folder, a promotion with MLflow's alias or, without it, with its tag.
    """
    by_kind = {step["kind"]: step for step in steps}
    if folder := by_kind.get("folder"):
        place = Path(folder["path"])
        return {
            "release": f"{place.parent.name}@{place.name}",
            "mirrored": "model_version" in by_kind,
        }
    alias = by_kind.get("alias")
    if alias is None:
        return {"promotion": by_kind["stage_tag"]["ref"], "mirrored": False} if steps else {}
    now = tags.current(root, alias["name"], alias["stage"])
    following = f"{alias['name']}#{alias['stage']}#{now.number + 1 if now else 1}"
    ref = by_kind.get("stage_tag", {}).get("ref", following)
    return {"promotion": ref, "mirrored": True, "before": alias["before"]}


def _unpublish(store: ReleaseStore, tag: Tag, *, mirrored: bool) -> None:
    """Remove all of a release, last first; where one cannot be removed, the others are."""
    with ExitStack() as removed:
        if (folder := tag.folder(store.root)).exists():
            removed.callback(shutil.rmtree, folder)
        removed.callback(tag.archive(store.root).unlink, missing_ok=True)
        if mirrored:
            removed.callback(lambda: store.mirror().unregister(tag.name, str(tag.version)))
        removed.callback(tags.delete_tag, store.root, str(tag))


def _refuse_tag(store: ReleaseStore, ref: str) -> None:
    if tags.has_tag(store.root, ref):
        raise UserError(f"git has a tag {ref} that is no release of ours; rename or delete it")


def refuse_unknown_or_recalled(store: ReleaseStore, tag: Tag) -> None:
    """Raise at a release that is not there, or that was recalled."""
    if tag not in tags.release_tags(store.root):
        raise UserError(f"there is no release {tag}; see posttrain release list")
    for release in store.ledger.annotations.releases():
        if release.tag == str(tag):
            refuse_recalled(store.ledger, release.members)
