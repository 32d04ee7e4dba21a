"""`posttrain lineage diff`: two runs side by side."""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli.ledger import existing_ledger, ledger_option
from posttrain.cli.legends import say_legend
from posttrain.cli.options import Documented
from posttrain.cli.tables import colored, print_table
from posttrain.provenance.ledger import StageRun
from posttrain.provenance.lineage.compare import StageComparison, ValueChange, compare_runs
from posttrain.provenance.lineage.names import find_run

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
    with existing_ledger(ledger_at) as ledger:
        old, new = find_run(ledger, before), find_run(ledger, after)
        compared = compare_runs(ledger, old, new)
    if as_json:
        click.echo(json.dumps([as_object(each) for each in compared], indent=2))
        return
    shown = [each for each in compared if everything or not each.same]
    if shown:
        print_table(("stage", "what", f"run {old.id}", f"run {new.id}"), _rows(shown))
        say_legend("runs")
    equal = sum(each.same for each in compared)
    click.echo(f"{equal} of {len(compared)} stages are equal")


def _rows(compared: Sequence[StageComparison]) -> "Iterator[Sequence[str | Text]]":
    """Per stage its outcome, the first cause, and every artifact and number that changed."""
    for each in compared:
        stage = colored(each.stage, "bold")
        yield stage, "status", _status(each.before), _status(each.after)
        if each.cause:
            yield "", "cause", each.cause, ""
        for change in (*each.outputs, *each.metrics):
            yield "", change.name, _shown(change.before), _shown(change.after)


def _status(run: StageRun | None) -> "str | Text":
    if run is None:
        return colored("not in this run", "dim")
    return f"{run.status}, {run.seconds:.1f} s"


def _shown(value: float | str | None) -> "str | Text":
    if value is None:
        return colored("none", "dim")
    return f"{value:.6g}" if isinstance(value, float) else str(value)


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
