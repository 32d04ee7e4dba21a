"""`posttrain status`: each stage's state, its artifacts, and the last runs."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from posttrain.cli.legends import say_legend
from posttrain.cli.options import Documented, overrides_option, plain_table, recipe_argument
from posttrain.provenance.actor import person
from posttrain.stage.formatting import bytesize, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from posttrain.pipeline.execution.session import Session
    from posttrain.pipeline.plan import Decision

_STATES = {
    "cached": "[green]up to date[/]",
    "restore": "[yellow]not in the workspace[/]",
    "run": "[red]out of date[/]",
    "pending": "[yellow]behind its inputs[/]",
    "missing": "[red]its file is missing[/]",
}
_NUM_RUNS = 5


@click.command(cls=Documented)
@recipe_argument
@overrides_option
@click.option("--by", metavar="TEXT", help="Of the last runs those of people whose name has TEXT.")
def status(recipe: Path, overrides: tuple[str, ...], by: str | None) -> None:
    """Show the state of every stage of RECIPE, what it made, and who ran it last.

    Examples:
      posttrain status
      posttrain status recipes/mine --by ada      the last runs that ada began

    """
    from posttrain.pipeline.execution.session import open_session

    with open_session(recipe, overrides) as session:
        console = Console()
        decisions = session.planner.plan()
        console.print(_stages(session, decisions))
        say_legend("artifacts")
        for decision in decisions:
            told = decision.reasons if decision.action == "missing" else decision.unseen
            for line in told:
                click.echo(f"note: {line}")
        runs = _runs(session, by)
        if runs.row_count:
            console.print()
            console.print(runs)


def _stages(session: "Session", decisions: "Sequence[Decision]") -> Table:
    headings = ("stage and artifacts", "rows", "size", "digest")
    table = plain_table(*headings, right=("rows", "size"), unbroken=headings)
    for decision in decisions:
        history, of = session.ledger.history, (decision.stage, session.recipe.name)
        made = decision.known or history.latest(*of)
        tried = "failed" if history.executions(*of, limit=1) else "never ran"
        state = _STATES[decision.action] if made else f"[red]{tried}[/]"
        table.add_row(f"[bold]{decision.stage}[/] {state}")
        for record in made.outputs if made else ():
            rows = "" if record.rows is None else f"{record.rows:,}"
            table.add_row(f"  {record.path}", rows, bytesize(record.size), record.digest[:12])
    return table


def _runs(session: "Session", by: str | None) -> Table:
    """The last runs of this recipe, newest first; all of one person's where one is asked for."""
    headings = ("run", "started", "took", "status")
    table = plain_table(*headings, "by", "command", unbroken=headings)
    own = [
        run
        for run in session.ledger.runs()
        if run.recipe == session.recipe.name and (by or "").lower() in (run.actor or "").lower()
    ]
    for run in own[: None if by else _NUM_RUNS]:
        took = "" if run.ended is None else duration(max(0.0, run.ended - run.started))
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))
        # An address would take a third of the line.
        table.add_row(run.id, started, took, run.status, person(run.actor), run.command)
    return table
