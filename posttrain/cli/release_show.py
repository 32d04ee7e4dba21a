"""`posttrain release list | show | diff`: which releases there are and what is in them."""

import time
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from posttrain.cli.ledger import workspace_root
from posttrain.cli.release_move import settle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from posttrain.publishing.release.config import AnyGate
    from posttrain.publishing.release.statistics import GateResult


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading)
    return table


@click.command("list")
@click.argument("name", required=False)
@click.option("--history", is_flag=True, help="Every change of an environment, oldest first.")
def list_(name: str | None, history: bool) -> None:
    """List releases with their environments, newest first."""
    from posttrain.publishing.release.registered import registered
    from posttrain.publishing.release.tags import promotions

    settle()
    root = workspace_root(None)
    if history:
        table = _table("when", "environment", "release", "reason")
        for each in promotions(root, name):
            when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(each.when))
            table.add_row(when, each.tag, f"{each.name}@{each.version}", each.reason)
        Console().print(table)
        return
    found = registered(root, name)
    if not found:
        click.echo("Nothing is released. posttrain release create NAME makes a release.")
        return
    table = _table("release", "environments", "commit")
    for release in found:
        table.add_row(str(release.tag), ", ".join(release.environments), release.commit[:12])
    Console().print(table)


@click.command()
@click.argument("target", metavar="NAME[@VERSION|#ENVIRONMENT]")
def show(target: str) -> None:
    """Show a release: where it is, its metrics with intervals, and its gates."""
    import json

    from posttrain.publishing.release.contents import EVIDENCE, FolderContents
    from posttrain.publishing.release.registered import find_release, release_folder
    from posttrain.publishing.release.verify import said_about

    settle()
    root = workspace_root(None)
    tag = find_release(root, target)
    folder = release_folder(root, tag)
    contents = FolderContents(folder)
    about = said_about(contents)
    click.echo(f"{tag}  {folder}")
    click.echo(f"commit {about['commit']}  level {about['level']}  parent {about['parent'] or '-'}")
    click.echo(f"policy {about['policy']['sha256']}")
    metrics = json.loads(contents.read(f"{EVIDENCE}/metrics.json"))
    table = _table("metric", "value", "95% interval", "problems", "seeds")
    for name, value in metrics["evaluation"].items():
        interval = f"{value['low']:.4f} to {value['high']:.4f}"
        counts = (f"{value['problems']:.0f}", f"{value['seeds']:.0f}")
        table.add_row(name, f"{value['value']:.4f}", interval, *counts)
    Console().print(table)
    gates = _table("gate", "passed because")
    for each in metrics["gates"]:
        gates.add_row(each["gate"]["name"], each["rule"])
    Console().print(gates)


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
def diff(first: str, second: str) -> None:
    """Show what differs from release A to B: parameters, artifacts, figures, packages, inputs."""
    from posttrain.publishing.release.registered import differences, find_release, release_folder

    settle()
    root = workspace_root(None)
    folders = [release_folder(root, find_release(root, t)) for t in (first, second)]
    found = differences(*folders)
    table = _table("what", first, second)
    for row in found:
        table.add_row(*row)
    Console().print(table)
    click.echo(f"{len(found)} differences.")


def show_gates(judged: "Iterable[tuple[AnyGate, GateResult]]") -> None:
    """A table of gates, their rules and their figures."""
    table = _table("gate", "", "figures", "rule")
    for gate, result in judged:
        figures = "\n".join(f"{name} {value:.4g}" for name, value in result.figures.items())
        passed = "[green]passed[/]" if result.passed else "[red]failed[/]"
        table.add_row(gate.name, passed, figures, result.rule)
    Console().print(table)
