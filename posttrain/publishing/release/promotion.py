"""Promote and roll back: which version each environment has, with history."""

from posttrain.provenance.lineage.recalls import refuse_recalled
from posttrain.publishing.release import pointers, tags
from posttrain.publishing.release.names import Tag, Version
from posttrain.publishing.release.pointers import ReleaseStore
from posttrain.stage.errors import UserError


def promote(store: ReleaseStore, tag: Tag, environment: str, reason: str) -> tags.Promotion:
    """Point `environment` to a release that was not recalled."""
    _refuse_unknown_or_recalled(store, tag)
    now = tags.current(store.root, tag.name, environment)
    if now is not None and now.version == tag.version:
        raise UserError(
            f"{tag} is in {environment} already, since {now.tag}; there is nothing to do"
        )
    return pointers.assign(store, tag.name, environment, tag.version, reason)


def rollback(
    store: ReleaseStore, name: str, environment: str, *, to: Version | None, reason: str
) -> tags.Promotion:
    """Point `environment` to what it had before, or to `to`."""
    history = [
        each for each in tags.promotions(store.root, name) if each.environment == environment
    ]
    if not history:
        raise UserError(f"{name} was never in {environment}; see posttrain release list")
    version = to or _before(history)
    _refuse_unknown_or_recalled(store, Tag(name, version))
    return pointers.assign(store, name, environment, version, reason)


def _before(history: list[tags.Promotion]) -> Version:
    """The version before the present one; going back twice goes back two versions."""
    stack: list[Version] = []
    for each in history:
        if each.version in stack:
            del stack[stack.index(each.version) :]
        stack.append(each.version)
    if len(stack) < 2:
        name, environment = history[-1].name, history[-1].environment
        raise UserError(
            f"{environment} had no version of {name} before {history[-1].version}; "
            "name one with --to VERSION"
        )
    return stack[-2]


def _refuse_unknown_or_recalled(store: ReleaseStore, tag: Tag) -> None:
    if tag not in tags.release_tags(store.root):
        raise UserError(f"there is no release {tag}; see posttrain release list")
    for release in store.ledger.annotations.releases():
        if release.tag == str(tag):
            refuse_recalled(store.ledger, release.members)
