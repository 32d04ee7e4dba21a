"""Promote and roll back: which version each stage has, with history."""

from posttrain.provenance.lineage.recalls import refuse_recalled
from posttrain.publishing.release import pointers, tags
from posttrain.publishing.release.names import Tag, Version
from posttrain.publishing.release.pointers import Place
from posttrain.stage.errors import UserError


def promote(place: Place, tag: Tag, stage: str, reason: str) -> tags.Assignment:
    """Point `stage` to a release that nobody recalled."""
    _check(place, tag)
    now = tags.current(place.root, tag.name, stage)
    if now is not None and now.version == tag.version:
        raise UserError(f"{tag} is in {stage} already, since {now.tag}; there is nothing to do")
    return pointers.assign(place, tag.name, stage, tag.version, reason)


def rollback(
    place: Place, name: str, stage: str, *, to: Version | None, reason: str
) -> tags.Assignment:
    """Point `stage` to what it had before, or to `to`."""
    history = [each for each in tags.assignments(place.root, name) if each.stage == stage]
    if not history:
        raise UserError(f"{name} was never in {stage}; see posttrain release list")
    version = to or _before(history)
    _check(place, Tag(name, version))
    return pointers.assign(place, name, stage, version, reason)


def _before(history: list[tags.Assignment]) -> Version:
    """The version before the present one; going back twice goes back two versions."""
    stack: list[Version] = []
    for each in history:
        if each.version in stack:
            del stack[stack.index(each.version) :]
        stack.append(each.version)
    if len(stack) < 2:
        name, stage = history[-1].name, history[-1].stage
        raise UserError(
            f"{stage} had no version of {name} before {history[-1].version}; "
            "name one with --to VERSION"
        )
    return stack[-2]


def _check(place: Place, tag: Tag) -> None:
    if tag not in tags.release_tags(place.root):
        raise UserError(f"there is no release {tag}; see posttrain release list")
    for release in place.ledger.annotations.releases():
        if release.tag == str(tag):
            refuse_recalled(place.ledger, release.members)
