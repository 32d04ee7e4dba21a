"""`posttrain release`: make releases that prove themselves, check, rebuild and move them."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli.release_keys import keys as keys_group
from posttrain.cli.release_move import promote, push, rollback
from posttrain.cli.release_run import rebuild, serve
from posttrain.cli.release_show import diff, list_, show
from posttrain.cli.release_trust import Trust, trust_options
from posttrain.publishing.release.names import ENVIRONMENTS, check_environment
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

    from posttrain.publishing.release.config import AnyGate
    from posttrain.publishing.release.keyless import Notary
    from posttrain.publishing.release.statistics import GateResult


@click.group(
    epilog="""
\b
Examples:
  posttrain release keys init                     a key pair, outside of the repository
  posttrain release create math-policy            release what the recipe made, if its gates pass
  posttrain release verify math-policy@v0.1.0     every byte, claim, link and signature
  posttrain release verify release.tar --key k.pub    the same, with nothing but the archive
  posttrain release promote math-policy@v0.1.0 --environment prod
"""
)
def release() -> None:
    """Make, check, rebuild and promote releases."""


@release.command(
    epilog="""
\b
The recipe says what is asked for:
  release:
    policy: rl.policy
    licences: {words: MIT}
    gates:
    - {name: better, kind: improvement, metric: pass_at_1, against: parent, without_parent: sft}
"""
)
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
@click.option("--push", metavar="HUB_REPOSITORY", help="Upload it to the Hugging Face hub too.")
@click.option("--dry-run", is_flag=True, help="Judge by the gates, and write nothing.")
def create(
    name: str,
    recipe: Path,
    environment: str | None,
    key: Path | None,
    sign: str,
    push: str | None,
    dry_run: bool,
) -> None:
    """Release what the recipe holds now, if every gate passes; else name the gate and its figures.

    Without a version it is the next minor one. Nothing is written unless everything is.
    """
    from posttrain.pipeline.execution.session import open_session
    from posttrain.publishing.release import create as making
    from posttrain.publishing.release import pointers, promotion, tags
    from posttrain.publishing.release.names import check_name, choose_tag
    from posttrain.publishing.release.registry import open_registry

    check_name(name.partition("@")[0])
    with open_session(recipe) as session, session.workspace.locked("posttrain release create"):
        root, state = session.workspace.root, session.workspace.state
        if dry_run:
            tag = choose_tag(name, tags.release_tags(root))
            _, judged = making.check_gates(session, tag)
            show_gates(judged)
            making.refuse(judged)
            return
        signer, notary = _signer(key, sign)
        place = pointers.ReleaseStore(root, state, session.ledger, open_registry(state))
        with pointers.locked(state):
            _report_repair(pointers.repair(place))
            made = making.create(session, name, signer, place.registry, notary)
            show_gates(made.judged)
            click.echo(f"{made.tag}: {made.folder}\n{made.archive}\nstatement {made.statement}")
            if environment is not None:
                moved = promotion.promote(
                    place, made.tag, check_environment(environment), "promoted when created"
                )
                click.echo(f"{moved.tag}: {made.tag} is in {environment}")
    if push is not None:
        from posttrain.publishing.release.push import push_to_hub

        click.echo(push_to_hub(made.folder, push))


@release.command()
@click.argument("target", metavar="TAG|FOLDER|ARCHIVE")
@trust_options
@click.option("--expect", metavar="NAME@VERSION", help="It must be this release and no other.")
@click.option(
    "--environment", is_flag=True, help="Compare the installed packages, file by file, too."
)
def verify(target: str, expect: str | None, environment: bool, trust: Trust) -> None:
    """Check every byte, claim, link and signature with a public key; exits with 1 on a finding.

    A tag is looked up in git; its archive comes from the project, the DVC cache or a DVC remote.
    With --environment what is installed here is compared with the release's lock besides, and
    every file of it is hashed: some ten seconds.
    """
    from posttrain.publishing.release.fetch import located
    from posttrain.publishing.release.names import parse_tag

    findings, other = list[str](), list[str]()
    for path, tag, pointed in located(target):
        wanted = parse_tag(expect) if expect else tag
        findings += [*pointed, *trust.verify(path, expect=wanted)]
        if not findings:
            click.echo(f"{path}: every byte, claim, link and signature holds")
    if environment and not findings:
        other = _environment(path)
        findings += other
        click.echo(f"environment: {'another one' if other else 'every package is the locked one'}")
    for finding in findings:
        word = "differs" if finding in other else "altered"
        click.echo(f"{click.style(word, fg='red')}  {finding}", err=True)
    if findings:
        sys.exit(1)


def _signer(key: Path | None, sign: str) -> "tuple[CryptoSigner, Notary | None]":
    """Who signs, and who certifies it; refused before anything is judged."""
    from posttrain.publishing.release import keyless, keys

    if sign == "key":
        return keys.load_signer(key or keys.private_path()), None
    if key is not None:
        raise UserError("--sign keyless takes no --key; leave one of them out")
    keys.check_library()
    keyless.check_identity()
    return keyless.one_time_signer(), keyless.Sigstore()


def _environment(path: Path) -> list[str]:
    """How this environment is not the one that the release at `path` was made in."""
    import json

    from posttrain.publishing.release.contents import EVIDENCE, open_contents
    from posttrain.publishing.release.environment import (
        altered_files,
        differences,
        environment_lock,
    )

    lock = json.loads(open_contents(path).read(f"{EVIDENCE}/environment.json"))
    return [*differences(lock, environment_lock()), *altered_files(lock)]


def show_gates(judged: "Iterable[tuple[AnyGate, GateResult]]") -> None:
    """A table of gates, their rules and their figures."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("gate", "", "figures", "rule"):
        table.add_column(heading)
    for gate, result in judged:
        figures = "\n".join(f"{name} {value:.4g}" for name, value in result.figures.items())
        passed = "[green]passed[/]" if result.passed else "[red]failed[/]"
        table.add_row(gate.name, passed, figures, result.rule)
    Console().print(table)


def _report_repair(undone: Sequence[str]) -> None:
    if undone:
        what = ", ".join(undone)
        click.echo(f"note: a command that was killed had changed {what}; that is undone", err=True)


for _command in (rebuild, promote, rollback, list_, show, diff, serve, push, keys_group):
    release.add_command(_command)
