"""`posttrain status`: each stage's state, its artifacts, and the last runs."""

import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from posttrain.cli.options import recipe_argument
from posttrain.execution.session import Session, open_session

_STATES = {
    "cached": "[green]up to date[/]",
    "restore": "[yellow]not in the workspace[/]",
    "run": "[red]out of date[/]",
    "pending": "[yellow]behind its inputs[/]",
}


@click.command()
@recipe_argument
def status(recipe: Path) -> None:
    """Show the state of every stage of RECIPE and what it made."""
    with open_session(recipe) as session:
        console = Console()
        console.print(_stages(session))
        console.print()
        console.print(_runs(session))


def _stages(session: Session) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("stage", "state", "artifact", "type", "rows", "bytes", "digest"):
        table.add_column(heading, justify="right" if heading in ("rows", "bytes") else "left")
    for decision in session.planner.plan():
        name, state = decision.stage, _STATES[decision.action]
        made = decision.known or session.ledger.latest(name, session.recipe.name)
        if made is None:
            table.add_row(name, "[red]never ran[/]")
        for record in made.outputs if made else ():
            rows = "" if record.rows is None else f"{record.rows:,}"
            size = f"{record.size:,}"
            table.add_row(name, state, record.path, record.type, rows, size, record.digest[:12])
            name = state = ""
    return table


def _runs(session: Session) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "recipe", "started", "took", "status", "command"):
        table.add_column(heading)
    for run in session.ledger.runs(5):
        took = "" if run.ended is None else f"{max(0.0, run.ended - run.started):.0f} s"
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))
        table.add_row(run.id, run.recipe, started, took, run.status, run.command)
    return table
