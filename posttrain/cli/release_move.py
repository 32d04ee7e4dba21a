"""`posttrain release promote | rollback | push`: where releases are pointed to and sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from posttrain.cli.ledger import existing_ledger, workspace_root
from posttrain.cli.release_trust import Trust, trust_options
from posttrain.provenance.ledger.location import STATE_DIR
from posttrain.publishing.release.names import ENVIRONMENTS
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import CacheName

if TYPE_CHECKING:
    from posttrain.publishing.release.pointers import ReleaseStore

environment_option = click.option(
    "--environment",
    required=True,
    type=click.Choice(ENVIRONMENTS),
    help="Environment that is moved.",
)
reason_option = click.option("--reason", default="", help="Why; it is kept in the history.")


@contextmanager
def open_place() -> Iterator["ReleaseStore"]:
    """The project around us, for one command at a time, with half-done changes undone."""
    from posttrain.publishing.release.pointers import ReleaseStore, locked, repair
    from posttrain.publishing.release.registry import open_registry

    root = workspace_root(None)
    state = root / STATE_DIR
    with locked(state), existing_ledger(None) as ledger:
        place = ReleaseStore(root, state, ledger, open_registry(state))
        if undone := repair(place):
            click.echo(f"note: undone after a killed command: {', '.join(undone)}", err=True)
        yield place


def settle() -> None:
    """Take back what a killed command left half-done, so that it is not shown."""
    from posttrain.publishing.release.pointers import is_pending

    if is_pending(workspace_root(None) / STATE_DIR):
        with open_place():
            pass


@click.command()
@click.argument("target", metavar="NAME[@VERSION]")
@environment_option
@reason_option
@trust_options
def promote(target: str, environment: str, reason: str, trust: Trust) -> None:
    """Point an environment to a release that verifies; git tag and MLflow alias move together."""
    from posttrain.publishing.release import promotion
    from posttrain.publishing.release.registered import find_release, release_folder

    with open_place() as place:
        tag = find_release(place.root, target)
        folder = release_folder(place.root, tag)
        if findings := trust.verify(folder, expect=tag):
            raise UserError(f"{tag} does not verify: {findings[0]}; nothing was promoted")
        moved = promotion.promote(place, tag, environment, reason)
    click.echo(f"{moved.tag}: {tag} is in {environment}")


@click.command()
@click.argument("name")
@environment_option
@reason_option
@click.option("--to", "version", metavar="VERSION", help="This version [default: the one before].")
def rollback(name: str, environment: str, reason: str, version: str | None) -> None:
    """Point an environment back to the version that it had before."""
    from posttrain.publishing.release import promotion
    from posttrain.publishing.release.names import parse_version

    with open_place() as place:
        to = parse_version(version) if version else None
        moved = promotion.rollback(place, name, environment, to=to, reason=reason or "rolled back")
    click.echo(f"{moved.tag}: {name}@{moved.version} is in {environment} again")


@click.command()
@click.argument("target", metavar="NAME[@VERSION|#STAGE]")
@click.argument("repository", metavar="[HUB_REPOSITORY]", required=False)
@click.option("--dvc", "to_remote", is_flag=True, help="Upload the archive to the DVC remote.")
def push(target: str, repository: str | None, to_remote: bool) -> None:
    """Upload a release to the Hugging Face hub (a new repository is private), or to DVC's remote.

    With the archive in the remote and the tags pushed (git push --tags), anybody who clones the
    repository can verify the release by its tag.
    """
    from posttrain.publishing.release.push import push_to_hub
    from posttrain.publishing.release.registered import find_release, release_folder

    if repository is None and not to_remote:
        raise UserError("name a repository of the hub, or give --dvc; there is nothing to do")
    settle()
    root = workspace_root(None)
    tag = find_release(root, target)
    if to_remote:
        from posttrain.provenance.dvc.remote import push_object
        from posttrain.publishing.release.tags import release_message

        push_object(root, CacheName(release_message(root, tag)["archive-md5"]))
        click.echo(f"the archive of {tag} is in the DVC remote; git push --tags shares the pointer")
    if repository is not None:
        click.echo(push_to_hub(release_folder(root, tag), repository))
