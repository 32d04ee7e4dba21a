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
from posttrain.release.names import STAGES, check_stage

if TYPE_CHECKING:
    from posttrain.release.config import AnyGate
    from posttrain.release.statistics import Verdict

key_option = click.option(
    "--key",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Public key of whoever signed [default: your own].",
)


@click.group(
    epilog="""
\b
Examples:
  posttrain release keys init                     a key pair, outside of the repository
  posttrain release create math-policy            release what the recipe made, if its gates pass
  posttrain release verify math-policy@v0.1.0     every byte, claim, link and signature
  posttrain release verify release.tar --key k.pub    the same, with nothing but the archive
  posttrain release promote math-policy@v0.1.0 --stage prod
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
@click.option("--stage", type=click.Choice(STAGES), help="Promote it to this stage at once.")
@click.option(
    "--key", type=click.Path(path_type=Path, dir_okay=False), help="Private key [default: yours]."
)
@click.option("--push", metavar="HUB_REPOSITORY", help="Upload it to the Hugging Face hub too.")
@click.option("--dry-run", is_flag=True, help="Judge by the gates, and write nothing.")
def create(
    name: str, recipe: Path, stage: str | None, key: Path | None, push: str | None, dry_run: bool
) -> None:
    """Release what the recipe holds now, if every gate passes; else name the gate and its figures.

    Without a version it is the next minor one. Nothing is written unless everything is.
    """
    from posttrain.execution.session import open_session
    from posttrain.release import create as making
    from posttrain.release import keys, pointers, stages, tags
    from posttrain.release.names import choose_tag
    from posttrain.release.registry import open_registry

    with open_session(recipe) as session, session.workspace.locked("posttrain release create"):
        root, state = session.workspace.root, session.workspace.state
        if dry_run:
            tag = choose_tag(name, tags.release_tags(root))
            _, judged = making.check_gates(session, tag)
            show_gates(judged)
            making.refuse(judged)
            return
        signer = keys.load_signer(key or keys.private_path())
        place = pointers.Place(root, state, session.ledger, open_registry(state))
        with pointers.locked(state):
            _report_repair(pointers.repair(place))
            made = making.create(session, name, signer, place.registry)
            show_gates(made.judged)
            click.echo(f"{made.tag}: {made.folder}\n{made.archive}\nstatement {made.statement}")
            if stage is not None:
                moved = stages.promote(place, made.tag, check_stage(stage), "promoted when created")
                click.echo(f"{moved.tag}: {made.tag} is in {stage}")
    if push is not None:
        from posttrain.release.push import push_to_hub

        click.echo(push_to_hub(made.folder, push))


@release.command()
@click.argument("target", metavar="TAG|FOLDER|ARCHIVE")
@key_option
@click.option("--expect", metavar="NAME@VERSION", help="It must be this release and no other.")
def verify(target: str, key: Path | None, expect: str | None) -> None:
    """Check every byte, claim, link and signature with a public key; exits with 1 on a finding.

    A tag is looked up in git; its archive comes from the project, the DVC cache or a DVC remote.
    """
    from posttrain.release import keys
    from posttrain.release.fetch import located
    from posttrain.release.names import parse_tag
    from posttrain.release.verify import verify_path

    public = keys.load_public(key or keys.public_path())
    findings: list[str] = []
    for path, tag, pointed in located(target):
        wanted = parse_tag(expect) if expect else tag
        findings += [*pointed, *verify_path(path, public, expect=wanted)]
        if not findings:
            click.echo(f"{path}: every byte, claim, link and signature holds")
    for finding in findings:
        click.echo(f"{click.style('altered', fg='red')}  {finding}", err=True)
    if findings:
        sys.exit(1)


def show_gates(judged: "Iterable[tuple[AnyGate, Verdict]]") -> None:
    """A table of gates, their rules and their figures."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("gate", "", "figures", "rule"):
        table.add_column(heading)
    for gate, verdict in judged:
        figures = "\n".join(f"{name} {value:.4g}" for name, value in verdict.figures.items())
        passed = "[green]passed[/]" if verdict.passed else "[red]failed[/]"
        table.add_row(gate.name, passed, figures, verdict.rule)
    Console().print(table)


def _report_repair(undone: Sequence[str]) -> None:
    if undone:
        what = ", ".join(undone)
        click.echo(f"note: a command that was killed had changed {what}; that is undone", err=True)


for _command in (rebuild, promote, rollback, list_, show, diff, serve, push, keys_group):
    release.add_command(_command)
