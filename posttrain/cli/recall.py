"""`posttrain lineage recall` and `recalls`: mark data bad, and see what is marked."""

import time
from pathlib import Path

import click

from posttrain.cli.ledger import existing_ledger, ledger_option, workspace_root
from posttrain.cli.options import Documented
from posttrain.provenance.actor import actor_at
from posttrain.provenance.ledger import Ledger
from posttrain.provenance.lineage.graph import Node
from posttrain.provenance.lineage.impact import Impact, impact
from posttrain.provenance.lineage.names import Selected, find_node
from posttrain.provenance.lineage.recalls import recall as mark
from posttrain.provenance.lineage.recalls import recalled
from posttrain.provenance.lineage.recalls import withdraw as take_back
from posttrain.provenance.lineage.render.view import caption
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import counted


@click.command(short_help="Mark NODE as bad, so that nothing uses it any more.", cls=Documented)
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

    Examples:
      posttrain lineage recall synthesize@latest --reason 'leaked test problems'
      posttrain lineage recall verifier:numeric --reason 'takes 1,2 for 12'
      posttrain lineage recall data/curate/traces.parquet --rows "source = 'sum'" --reason 'wrong'
      posttrain lineage recall verifier:numeric --withdraw --reason 'it was the font'

    """
    root = workspace_root(ledger_at)
    with existing_ledger(ledger_at) as ledger:
        selected = find_node(ledger, node, root=root, cwd=Path.cwd())
        actor = actor_at(root)
        if withdraw:
            done = take_back(ledger, selected, reason=reason, actor=actor)
            click.echo(f"{len(done)} recalls are lifted")
            return
        cleared = [] if predicate is None else _cleared(ledger, selected, predicate, root)
        mark(ledger, selected, reason=reason, predicate=predicate, cleared=cleared, actor=actor)
        found = impact(ledger, selected, root)
        refused = _refused(ledger, found)
    click.echo(f"Recalled. {len(refused)} of {len(found.affected)} nodes after it are refused now:")
    for each in refused:
        click.echo(f"  {caption(each)}  {each.name}")


def _cleared(ledger: Ledger, selected: Selected, predicate: str, root: Path) -> list[str]:
    """Later tables that hold none of the rows; a predicate that names no row is a mistake."""
    from posttrain.provenance.lineage.rows import cleared_tables
    from posttrain.provenance.lineage.tables import open_tables

    tables = open_tables(ledger, root)
    table = tables.of_node(selected)
    num_rows = table.numbers(predicate).len()
    if not num_rows:
        raise UserError(f"no row of {table.path} has {predicate}; nothing was recalled")
    click.echo(f"{counted(num_rows, 'row')} of {table.path}")
    return cleared_tables(tables, selected, predicate)


def _refused(ledger: Ledger, found: Impact) -> list[Node]:
    """What a recall forbids of all that depends on the node; a release by its members."""
    nodes = found.graph.nodes.values()
    digests = {node.id: str(node.facts["digest"]) for node in nodes if node.kind == "artifact"}
    bad = recalled(ledger, list(digests.values()))
    before = found.graph.before()

    def is_refused(node: Node) -> bool:
        if node.kind == "artifact":
            return digests[node.id] in bad
        return any(digests.get(edge.source) in bad for edge in before.get(node.id, ()))

    return [node for node in found.affected if is_refused(node)]


@click.command(cls=Documented)
@ledger_option
def recalls(ledger_at: str | None) -> None:
    """List the recalls that are in force."""
    with existing_ledger(ledger_at) as ledger:
        standing = ledger.annotations.recalls()
    for each in standing:
        day = time.strftime("%Y-%m-%d", time.gmtime(each.recalled))
        rows = f" (rows where {each.predicate})" if each.predicate else ""
        by = f" ({each.actor})" if each.actor else ""
        click.echo(f"{day}  {each.digest[:12]}{rows}  {each.reason}{by}")
    if not standing:
        click.echo("Nothing is recalled.")
