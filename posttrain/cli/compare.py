"""`posttrain lineage diff`: two runs side by side."""

import json

import click

from posttrain.cli.ledger import existing_ledger, ledger_option
from posttrain.cli.options import Documented
from posttrain.provenance.lineage.names import find_run


@click.command(short_help="Compare two runs, stage by stage.", cls=Documented)
@click.argument("before", metavar="RUN")
@click.argument("after", metavar="RUN")
@click.option("--all", "everything", is_flag=True, help="Show stages that are equal, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@ledger_option
def diff(before: str, after: str, everything: bool, as_json: bool, ledger_at: str | None) -> None:
    """Compare two runs: per stage the first cause, the changed artifacts, the changed numbers.

    A RUN is an id or its beginning, 'latest', or 'latest~1' for the one before.

    Examples:
      posttrain lineage diff latest~1 latest   the last run against the one before
      posttrain lineage diff 20261121-06 latest

    """
    from rich.console import Console

    from posttrain.provenance.lineage.compare import compare_runs
    from posttrain.provenance.lineage.render.comparison import as_object, as_table

    with existing_ledger(ledger_at) as ledger:
        old, new = find_run(ledger, before), find_run(ledger, after)
        compared = compare_runs(ledger, old, new)
    if as_json:
        click.echo(json.dumps([as_object(each) for each in compared], indent=2))
        return
    console = Console()
    shown = [each for each in compared if everything or not each.same]
    if shown:
        console.print(as_table(old, new, shown))
    equal = sum(each.same for each in compared)
    console.print(f"{equal} of {len(compared)} stages are equal")
