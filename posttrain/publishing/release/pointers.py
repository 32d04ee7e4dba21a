"""Where a release is pointed to: files, git tag, MLflow, ledger. They move together."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.provenance.ledger import Ledger, Release
from posttrain.publishing.release import tags
from posttrain.publishing.release.moves import IsDone, UndoableStep, apply_together, recover
from posttrain.publishing.release.names import Tag, Version
from posttrain.publishing.release.registry import Registry
from posttrain.stage.errors import UserError


@dataclass(frozen=True)
class ReleaseStore:
    """A project and whoever mirrors its releases."""

    root: Path
    state: Path
    ledger: Ledger
    registry: Registry | None

    @property
    def journal(self) -> Path:
        """Notes of a change that is being made."""
        return _journal(self.state)


@dataclass(frozen=True)
class Publication:
    """A finished release in a staging folder, and what is said about it everywhere."""

    tag: Tag
    commit: str
    message: str
    release: Release
    staging: Path


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


def publish(store: ReleaseStore, new: Publication) -> None:
    """Files, model version, git tag and ledger: all of them or none."""
    tag, registry = new.tag, store.registry
    folder, archive = tag.folder(store.root), tag.archive(store.root)
    named = {"name": tag.name, "version": str(tag.version)}
    # What is undone must be ours: nothing of it may be there before.
    for path in (folder, archive):
        if path.exists():
            raise UserError(f"{path} exists, but no release is known there; move it away")
    _refuse_tag(store, str(tag))
    steps = [
        UndoableStep(
            "folder", lambda: _move(new.staging / "folder", folder), {"path": str(folder)}
        ),
        UndoableStep(
            "archive", lambda: _move(new.staging / "archive.tar", archive), {"path": str(archive)}
        ),
    ]
    if registry is not None:
        steps.append(
            UndoableStep(
                "model_version",
                lambda: registry.register(tag.name, str(tag.version), folder.as_uri(), None),
                named,
            )
        )
    steps += [
        UndoableStep(
            "tag",
            lambda: tags.write_tag(store.root, str(tag), new.commit, new.message),
            {"ref": str(tag)},
        ),
        UndoableStep(
            "ledger", lambda: store.ledger.annotations.release(new.release), {"tag": str(tag)}
        ),
    ]
    apply_together(steps, _undo(store), journal=store.journal, is_done=_is_done(store))


def assign(
    store: ReleaseStore, name: str, environment: str, version: Version, reason: str
) -> tags.Promotion:
    """Point an environment to a version: MLflow's alias and the git tag, both or neither."""
    commit = tags.release_tags(store.root)[Tag(name, version)]
    before = tags.current(store.root, name, environment)
    number = before.number + 1 if before else 1
    ref = f"{name}#{environment}#{number}"
    _refuse_tag(store, ref)
    message = f"{name} {version} is in {environment}\n\nversion: {version}\nreason: {reason}\n"
    steps = []
    registry = store.registry
    if registry is not None:
        note = {"name": name, "stage": environment, "before": registry.assigned(name, environment)}
        steps.append(
            UndoableStep("alias", lambda: registry.assign(name, environment, str(version)), note)
        )
    steps.append(
        UndoableStep(
            "stage_tag",
            lambda: tags.write_tag(
                store.root, ref, commit, message, after=before.when if before else 0.0
            ),
            {"ref": ref},
        )
    )
    apply_together(steps, _undo(store), journal=store.journal, is_done=_is_done(store))
    moved = tags.current(store.root, name, environment)
    assert moved is not None
    return moved


def repair(store: ReleaseStore) -> list[str]:
    """Take back what a killed command left half-done; called before anything else is changed.

    Only under `locked`: then whatever lies in a staging folder is of a command that is gone.
    """
    undone = recover(_undo(store), journal=store.journal, is_done=_is_done(store))
    for path in staging_folder(store.state).glob("*"):
        shutil.rmtree(path, ignore_errors=True)
    return undone


def is_pending(state: Path) -> bool:
    """Return whether a command is changing pointers, or was killed while it did."""
    return _journal(state).exists()


def _journal(state: Path) -> Path:
    return state / "release-pending.json"


def staging_folder(state: Path) -> Path:
    """Where releases are written before they are anywhere."""
    return state / "staging-releases"


def _is_done(store: ReleaseStore) -> IsDone:
    def is_done(note: Mapping[str, Any]) -> bool:
        if note["kind"] == "ledger":
            return note["tag"] in {release.tag for release in store.ledger.annotations.releases()}
        return note["kind"] == "stage_tag" and tags.has_tag(store.root, str(note["ref"]))

    return is_done


def _undo(store: ReleaseStore) -> dict[str, Any]:
    def model_version(note: Mapping[str, Any]) -> None:
        _registry(store).unregister(str(note["name"]), str(note["version"]))

    def alias(note: Mapping[str, Any]) -> None:
        _registry(store).assign(str(note["name"]), str(note["stage"]), note["before"])

    def tag(note: Mapping[str, Any]) -> None:
        tags.delete_tag(store.root, str(note["ref"]))

    return {
        "folder": _remove,
        "archive": _remove,
        "model_version": model_version,
        "alias": alias,
        "tag": tag,
        "stage_tag": tag,
        # The last step, and one transaction: it happened, or there is nothing to take back.
        "ledger": lambda _note: None,
    }


def _registry(store: ReleaseStore) -> Registry:
    if store.registry is None:
        raise UserError(
            "a command that was killed left a change in MLflow half-done; run this one with "
            "tracking on (unset POSTTRAIN_TRACKING), so that it can be taken back"
        )
    return store.registry


def _refuse_tag(store: ReleaseStore, ref: str) -> None:
    if tags.has_tag(store.root, ref):
        raise UserError(f"git has a tag {ref} that is no release of ours; rename or delete it")


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def _remove(note: Mapping[str, Any]) -> None:
    path = Path(str(note["path"]))
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
