"""`posttrain release`: make releases that prove themselves, check, rebuild and move them."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli.options import DocumentedGroup
from posttrain.cli.release_check import rebuild, verify
from posttrain.cli.release_keys import choose_signer
from posttrain.cli.release_keys import keys as keys_group
from posttrain.cli.release_move import promote, push, rollback, serve, take_back_what_was_killed
from posttrain.cli.release_show import diff, list_, show, show_gates
from posttrain.publishing.release.names import ENVIRONMENTS
from posttrain.stage.errors import UserError, UserErrors

if TYPE_CHECKING:
    from collections.abc import Callable


@click.group(cls=DocumentedGroup)
def release() -> None:
    """Make, check, rebuild and promote releases.

    Examples:
      posttrain release keys init                     a key pair, outside of the repository
      posttrain release create math-policy            what the recipe made, if its gates pass
      posttrain release verify math-policy@v0.1.0     every byte, claim, link and signature
      posttrain release verify release.tar --key k.pub    the same, with nothing but the archive
      posttrain release promote math-policy@v0.1.0 --environment prod

    """


@release.command()
@click.argument("name", metavar="NAME[@VERSION]")
@click.option(
    "--recipe", default=".", type=click.Path(path_type=Path), help="Recipe that is released."
)
@click.option(
    "--environment", type=click.Choice(ENVIRONMENTS), help="Promote it to this environment at once."
)
@click.option(
    "--key", type=click.Path(path_type=Path, dir_okay=False), help="Private key [default: yours]."
)
@click.option(
    "--sign",
    type=click.Choice(["key", "keyless"]),
    default="key",
    show_default=True,
    help="keyless: by your identity, through Sigstore's public servers and log.",
)
@click.option("--dry-run", is_flag=True, help="Refuse all that would be, and write nothing.")
def create(
    name: str,
    recipe: Path,
    environment: str | None,
    key: Path | None,
    sign: str,
    dry_run: bool,
) -> None:
    """Release what the recipe holds now, if every gate passes; else name the gate and its figures.

    Without a version it is the next minor one. Nothing is written unless everything is.

    The recipe says what is asked for:
      release:
        policy: rl.policy
        licenses: {words: MIT}
        gates:
        - {name: better, kind: improvement, metric: pass_at_1, against: parent, without_parent: sft}
    """
    from posttrain.cli.notify import tell_of_gates
    from posttrain.pipeline.execution.session import open_session
    from posttrain.publishing.hub.licenses import license_metadata
    from posttrain.publishing.release import candidate, pointers, tags
    from posttrain.publishing.release import create as making
    from posttrain.publishing.release.candidate import GatesFailed
    from posttrain.publishing.release.names import check_name, choose_tag
    from posttrain.publishing.release.registry import open_registry

    check_name(name.partition("@")[0])
    with open_session(recipe) as session, session.workspace.locked("posttrain release create"):
        root, state = session.workspace.root, session.workspace.state
        if dry_run:
            found = candidate.check_gates(session, choose_tag(name, tags.release_tags(root)))
            show_gates(found.decided)
            for remark in found.remarks():
                click.echo(f"note: {remark}", err=True)
            _refuse_together(
                found.require_passed,
                lambda: making.free_tag(session, name),
                lambda: choose_signer(key, sign),
                lambda: license_metadata(
                    found.config.license, found.config.license_link, where="release.license"
                ),
            )
            return
        signer, notary = choose_signer(key, sign)
        store = pointers.ReleaseStore(root, state, session.ledger, open_registry(state))
        with pointers.locked(state):
            take_back_what_was_killed(store)
            try:
                made = making.create(session, name, signer, store.registry, notary)
            except GatesFailed as failed:
                tell_of_gates(recipe, failed.gates)
                raise
            show_gates(made.candidate.decided)
            for remark in made.candidate.remarks():
                click.echo(f"note: {remark}", err=True)
            click.echo(f"{made.tag}: {made.folder}\n{made.archive}\nstatement {made.statement}")
            if environment is not None:
                moved = pointers.promote(store, made.tag, environment, "promoted when created")
                click.echo(f"{moved.tag}: {made.tag} is in {environment}")


def _refuse_together(*checks: "Callable[[], object]") -> None:
    """Make every check before the first refusal, so that one look shows all that is to be mended.

    Raises:
        UserErrors: One or more of them refused.

    """
    refused: list[str] = []
    for check in checks:
        try:
            check()
        except UserError as error:
            refused += error.sentences
    if refused:
        raise UserErrors(refused)


for _command in (verify, rebuild, promote, rollback, list_, show, diff, serve, push, keys_group):
    release.add_command(_command)
