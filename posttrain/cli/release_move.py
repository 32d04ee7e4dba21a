"""`posttrain release promote | rollback | push | serve`: where releases go."""

import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli.ledger import existing_ledger, workspace_root
from posttrain.cli.options import Documented
from posttrain.cli.release_keys import Trust, trust_options
from posttrain.provenance.ledger.location import STATE_DIR
from posttrain.publishing.release.names import ENVIRONMENTS
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import CacheName

if TYPE_CHECKING:
    from posttrain.publishing.release.names import Tag
    from posttrain.publishing.release.pointers import ReleaseStore

environment_option = click.option(
    "--environment",
    required=True,
    type=click.Choice(ENVIRONMENTS),
    help="Environment that is moved.",
)
reason_option = click.option("--reason", default="", help="Why; it is kept in the history.")


def take_back_what_was_killed(store: "ReleaseStore") -> None:
    """Take back what a killed command left half-done, and say so; only under `locked`."""
    from posttrain.publishing.release.pointers import repair

    if undone := repair(store):
        click.echo(f"note: a command that was killed had begun {undone}; it is undone", err=True)


@contextmanager
def open_store() -> Iterator["ReleaseStore"]:
    """The project around us, for one command at a time, with half-done changes undone."""
    from posttrain.publishing.release.pointers import ReleaseStore, locked
    from posttrain.publishing.release.registry import open_registry

    root = workspace_root(None)
    state = root / STATE_DIR
    with locked(state), existing_ledger(None) as ledger:
        store = ReleaseStore(root, state, ledger, open_registry(state))
        take_back_what_was_killed(store)
        yield store


def settled_root() -> Path:
    """The project around us; what a killed command left half-done is taken back, not shown."""
    from posttrain.publishing.release.pointers import is_pending

    root = workspace_root(None)
    if is_pending(root / STATE_DIR):
        with open_store():
            pass
    return root


def chosen(target: str) -> "tuple[Tag, Path]":
    """The release that a command names, and its folder."""
    from posttrain.publishing.release.registered import find_release, release_folder

    root = settled_root()
    tag = find_release(root, target)
    return tag, release_folder(root, tag)


@click.command(cls=Documented)
@click.argument("target", metavar="NAME[@VERSION]")
@environment_option
@reason_option
@trust_options
def promote(target: str, environment: str, reason: str, **signed_by: Any) -> None:
    """Point an environment to a release that verifies; git tag and MLflow alias move together."""
    from posttrain.publishing.release import pointers
    from posttrain.publishing.release.registered import find_release

    with open_store() as store:
        tag = find_release(store.root, target)
        _require_verified(store.root, tag, Trust(**signed_by))
        moved = pointers.promote(store, tag, environment, reason)
    click.echo(f"{moved.tag}: {tag} is in {environment}")


def _require_verified(root: Path, tag: "Tag", trust: Trust) -> None:
    """Refuse to move an environment to a release that was altered, or whose tag was."""
    from posttrain.publishing.release.registered import release_folder, tag_findings

    folder = release_folder(root, tag)
    if findings := trust.verify(folder, expect=tag) or tag_findings(root, tag, folder):
        raise UserError(f"{tag} does not verify: {findings[0]}; nothing was moved")


@click.command(cls=Documented)
@click.argument("name")
@environment_option
@reason_option
@click.option("--to", "version", metavar="VERSION", help="This version [default: the one before].")
@trust_options
def rollback(
    name: str, environment: str, reason: str, version: str | None, **signed_by: Any
) -> None:
    """Point an environment back to the version that it had before, if that still verifies."""
    from posttrain.publishing.release import pointers
    from posttrain.publishing.release.names import check_name, parse_version

    to = parse_version(version) if version else None
    with open_store() as store:
        tag = pointers.rollback_target(store.root, check_name(name), environment, to)
        pointers.refuse_unknown_or_recalled(store, tag)
        _require_verified(store.root, tag, Trust(**signed_by))
        moved = pointers.rollback(store, tag, environment, reason or "rolled back")
    click.echo(f"{moved.tag}: {name}@{moved.version} is in {environment} again")


@click.command(cls=Documented)
@click.argument("target", metavar="NAME[@VERSION|#ENVIRONMENT]")
@click.argument("repository", metavar="[HUB_REPOSITORY]", required=False)
@click.option("--dvc", "to_remote", is_flag=True, help="Upload the archive to the DVC remote.")
def push(target: str, repository: str | None, to_remote: bool) -> None:
    """Upload a release to the Hugging Face hub (a new repository is private), or to DVC's remote.

    On the hub it is tagged with its version, and results that others added to the repository
    (.eval_results) stay.

    With the archive in the remote and the tags pushed (git push --tags), anybody who clones the
    repository can verify the release by its tag.
    """
    if repository is None and not to_remote:
        raise UserError("name a repository of the hub, or give --dvc; there is nothing to do")
    if to_remote:
        from posttrain.provenance.dvc.remote import DvcRemote
        from posttrain.publishing.release.registered import find_release
        from posttrain.publishing.release.tags import release_message

        root = settled_root()
        tag = find_release(root, target)
        DvcRemote(root).send([CacheName(release_message(root, tag)["archive-md5"])])
        click.echo(f"the archive of {tag} is in the DVC remote; git push --tags shares the pointer")
    if repository is not None:
        from posttrain.publishing.release.distribute import push_release

        click.echo(push_release(chosen(target)[1], repository))


@click.command(cls=Documented)
@click.argument("target", metavar="NAME[@VERSION|#ENVIRONMENT]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="Port to listen on.",
)
@click.option("--print", "only_print", is_flag=True, help="Print the command and start nothing.")
def serve(target: str, host: str, port: int, only_print: bool) -> None:
    """Print the vLLM command of a release; where vLLM is installed, start and check it."""
    from posttrain.publishing.release import distribute

    tag, folder = chosen(target)
    command = distribute.serve_command(folder, str(tag), host=host, port=port)
    click.echo(shlex.join(command))
    if only_print:
        return
    if shutil.which("vllm") is None:
        click.echo("vLLM is not installed here; run the command above where it is,", err=True)
        click.echo(f"or serve it by torch: posttrain serve {tag}", err=True)
        return
    process = distribute.serve(folder, command, host=host, port=port)
    click.echo(f"{tag} answers at http://{host}:{port}/v1, as it did when it was released.")
    try:
        sys.exit(process.wait())
    finally:
        process.terminate()
