"""`posttrain lineage recall` and `recalls`: mark data bad, and see what is marked."""

import time
from pathlib import Path

import click

from posttrain.cli.ledger import existing_ledger, ledger_option, workspace_root
from posttrain.errors import UserError
from posttrain.lineage.impact import impact
from posttrain.lineage.names import Selected, find_node
from posttrain.lineage.recalls import recall as mark
from posttrain.lineage.recalls import withdraw as take_back
from posttrain.lineage.render.view import caption
from posttrain.pipeline.ledger import Ledger


@click.command()
@click.argument("node")
@click.option(
    "--reason", required=True, help="What is wrong; everyone who is refused will read it."
)
@click.option(
    "--rows", "predicate", metavar="SQL", help="Only the rows of a table for which this holds."
)
@click.option("--withdraw", is_flag=True, help="Take earlier recalls of NODE back.")
@ledger_option
def recall(
    node: str, reason: str, predicate: str | None, withdraw: bool, ledger_at: str | None
) -> None:
    """Mark NODE as bad: plans, runs and releases that would use it, or what it became, refuse.

    The mark stays in the ledger for good; --withdraw adds a second one that lifts it.
    """
    root = workspace_root(ledger_at)
    with existing_ledger(ledger_at) as ledger:
        selected = find_node(ledger, node, root=root, cwd=Path.cwd())
        if withdraw:
            done = take_back(ledger, selected, reason=reason)
            click.echo(f"{len(done)} recalls are lifted")
            return
        if predicate is not None:
            click.echo(_count(ledger, selected, predicate, root))
        mark(ledger, selected, reason=reason, predicate=predicate)
        affected = impact(ledger, selected).affected
    click.echo(f"Recalled: {selected.id}. {len(affected)} nodes depend on it:")
    for each in affected:
        click.echo(f"  {caption(each)}  {each.name}")


def _count(ledger: Ledger, selected: Selected, predicate: str, root: Path) -> str:
    """How many rows the predicate names; a predicate that names none is a mistake."""
    from posttrain.lineage.rows import open_tables

    table = open_tables(ledger, root).of_node(selected)
    rows = table.matching(predicate)
    if rows == 0:
        raise UserError(f"no row of {table.path} has {predicate}; nothing was recalled")
    return f"{rows:,} rows of {table.path} are meant"


@click.command()
@ledger_option
def recalls(ledger_at: str | None) -> None:
    """List the recalls that are in force."""
    with existing_ledger(ledger_at) as ledger:
        standing = ledger.recalls()
    for each in standing:
        day = time.strftime("%Y-%m-%d", time.gmtime(each.recalled))
        rows = f" (rows where {each.predicate})" if each.predicate else ""
        click.echo(f"{day}  {each.digest[:12]}{rows}  {each.reason}")
    if not standing:
        click.echo("Nothing is recalled.")
