"""`posttrain lineage diff`: two runs side by side."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli.ledger import existing_ledger, ledger_option
from posttrain.cli.options import Documented
from posttrain.cli.tables import colored, print_table
from posttrain.provenance.lineage.compare import StageComparison, ValueChange

if TYPE_CHECKING:
    from rich.text import Text


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
    from posttrain.operations.python.figures import compared

    with existing_ledger(ledger_at) as ledger:
        found = compared(ledger, before, after)
    if as_json:
        click.echo(json.dumps([as_object(each) for each in found.stages], indent=2))
        return
    if rows := found.rows(everything=everything):
        print_table(found.headings, [_colored(row) for row in rows])
    click.echo(found.closing)


def _colored(row: Sequence[str]) -> "list[str | Text]":
    from posttrain.operations.python.figures import ABSENT, NONE

    stage, what, *values = row
    dim = [colored(value, "dim") if value in (ABSENT, NONE) else value for value in values]
    return [colored(stage, "bold"), what, *dim]


def as_object(each: StageComparison) -> dict[str, Any]:
    """One stage in JSON types."""

    def changes(found: Sequence[ValueChange]) -> dict[str, Any]:
        return {change.name: {"before": change.before, "after": change.after} for change in found}

    return {
        "stage": each.stage,
        "same": each.same,
        "before": None if each.before is None else each.before.id,
        "after": None if each.after is None else each.after.id,
        "cause": each.cause,
        "outputs": changes(each.outputs),
        "metrics": changes(each.metrics),
    }
