"""`posttrain release list | show | diff`: which releases there are and what is in them."""

import time
from typing import TYPE_CHECKING

import click

from posttrain.cli.legends import say_legend
from posttrain.cli.options import Documented
from posttrain.cli.release_move import chosen, settled_root
from posttrain.cli.tables import colored, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from posttrain.publishing.release.config import AnyGate
    from posttrain.publishing.release.gates.base import GateResult


@click.command("list", cls=Documented)
@click.argument("name", required=False)
@click.option("--history", is_flag=True, help="Every change of an environment, oldest first.")
def list_(name: str | None, history: bool) -> None:
    """List releases with their environments, newest first."""
    from posttrain.publishing.release.registered import registered
    from posttrain.publishing.release.tags import promotions

    root = settled_root()
    if history:
        rows = []
        for each in promotions(root, name):
            when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(each.when))
            rows.append((when, each.tag, f"{each.name}@{each.version}", each.actor, each.reason))
        print_table(("when", "environment", "release", "by", "reason"), rows)
        return
    found = registered(root, name)
    if not found:
        click.echo("Nothing is released. posttrain release create NAME makes a release.")
        return
    print_table(
        ("release", "environments", "commit"),
        [(str(each.tag), ", ".join(each.environments), each.commit[:12]) for each in found],
    )
    for finding in (finding for each in found for finding in each.findings):
        click.echo(f"{click.style('altered', fg='red')}  {finding}", err=True)


@click.command(cls=Documented)
@click.argument("target", metavar="NAME[@VERSION|#ENVIRONMENT]")
def show(target: str) -> None:
    """Show a release: where it is, its metrics with intervals, and its gates."""
    from posttrain.publishing.release.contents import FolderContents
    from posttrain.publishing.release.verify import said_about

    tag, folder = chosen(target)
    contents = FolderContents(folder)
    about = said_about(contents)
    click.echo(f"{tag}  {folder}")
    click.echo(f"commit {about['commit']}  level {about['level']}  parent {about['parent'] or '-'}")
    click.echo(f"policy {about['policy']['sha256']}")
    # Releases of older versions do not say it.
    for did, who in about.get("people", {}).items():
        names = [who] if isinstance(who, str) else who or ["nobody said who"]
        click.echo(f"{did} by {', '.join(names)}")
    metrics = contents.evidence("metrics")
    rows = []
    for name, value in metrics["evaluation"].items():
        interval = f"{value['low']:.4f} to {value['high']:.4f}"
        counts = (f"{value['problems']:.0f}", f"{value['seeds']:.0f}")
        rows.append((name, f"{value['value']:.4f}", interval, *counts))
    print_table(("metric", "value", "95% interval", "problems", "seeds"), rows)
    say_legend("figures")
    gates = [(each["gate"]["name"], each["rule"]) for each in metrics["gates"]]
    print_table(("gate", "passed because"), gates)
    say_legend("gate")


@click.command(cls=Documented)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
def diff(first: str, second: str) -> None:
    """Show what differs from release A to B: parameters, artifacts, figures, packages, inputs."""
    from posttrain.publishing.release.registered import differences

    found = differences(chosen(first)[1], chosen(second)[1])
    print_table(("what", first, second), found)
    click.echo(f"{len(found)} differences.")


def show_gates(decided: "Iterable[tuple[AnyGate, GateResult]]") -> None:
    """A table of gates, their rules and their figures."""
    rows = []
    for gate, result in decided:
        figures = "\n".join(f"{name} {value:.4g}" for name, value in result.figures.items())
        passed = colored("passed", "green") if result.passed else colored("failed", "red")
        rows.append((gate.name, passed, figures, result.rule))
    print_table(("gate", "", "figures", "rule"), rows)
