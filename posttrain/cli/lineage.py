"""`posttrain lineage`: where things come from, what depends on them, and what must not be used."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli.files import write_text
from posttrain.cli.impact import impact
from posttrain.cli.ledger import existing_ledger, ledger_option, workspace_root
from posttrain.cli.legends import say_legend
from posttrain.cli.licenses import licenses
from posttrain.cli.options import DocumentedGroup
from posttrain.cli.recall import recall, recalls
from posttrain.cli.tables import colored, print_table
from posttrain.provenance.lineage.compare import StageComparison, ValueChange
from posttrain.provenance.lineage.queries import LIMIT
from posttrain.provenance.lineage.render.view import Direction

if TYPE_CHECKING:
    from rich.text import Text

_FORMATS = ("tree", "json", "mermaid", "openlineage", "html")

_format_option = click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    help="How to show the graph [default: tree, or what the file's suffix says].",
)
_out_option = click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write to a file instead of the terminal; its suffix chooses the format.",
)
_limit_option = click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=LIMIT,
    show_default=True,
    help="Artifacts to show, nearest first; 0 shows all.",
)
_depth_option = click.option(
    "--depth",
    type=click.IntRange(min=1),
    help="Stage runs to follow [default: 12 in a tree, else all].",
)


def _drawing(command: Callable[..., None]) -> Callable[..., None]:
    """Options of every subcommand that draws a graph."""
    for option in (ledger_option, _limit_option, _depth_option, _out_option, _format_option):
        command = option(command)
    return command


@click.group(cls=DocumentedGroup)
def lineage() -> None:
    """Follow artifacts and stage runs up and down the graph that the ledger remembers.

    A NODE is a digest (4 characters or more), a path, STAGE@RUN (also STAGE@latest), a release tag,
    verifier:NAME, template:plain, or PATH#tokenizer and PATH#template of a model. Paths are shown
    from the project's root, since its recipes share a ledger.

    Examples:
      posttrain lineage up data/rl/policy           what the policy was made from
      posttrain lineage down 3fa9c1d2 --format json  what was made from those bytes
      posttrain lineage up rl@latest -o rl.html     the same as a page for the browser
      posttrain lineage down verifier:numeric          what hangs on the verdicts of a verifier

    """


@lineage.command()
@click.argument("node")
@_drawing
def up(node: str, **options: Any) -> None:
    """Show everything that NODE was made from.

    Examples:
      posttrain lineage up data/rl/policy            as a tree
      posttrain lineage up v1.2 --depth 2            a release and what is next to it
      posttrain lineage up rl@latest -o graph.html   a page to click through

    """
    _answer("up", [node], options)


@lineage.command()
@click.argument("node")
@_drawing
def down(node: str, **options: Any) -> None:
    """Show everything that was made from NODE.

    Examples:
      posttrain lineage down data/synthesize/problems.parquet
      posttrain lineage down data/pretrain/policy#tokenizer --format mermaid

    """
    _answer("down", [node], options)


@lineage.command()
@click.argument("start", metavar="A")
@click.argument("end", metavar="B")
@_drawing
def path(start: str, end: str, **options: Any) -> None:
    """Show every way from A to B, whichever of them was made first.

    Examples:
      posttrain lineage path data/synthesize/problems.parquet data/rl/policy

    """
    _answer("up", [start, end], options)


def _answer(direction: Direction, names: list[str], options: dict[str, Any]) -> None:
    """Ask for the graph of the nodes, render it and send it where it belongs."""
    from posttrain.operations.python.graphs import TREE_DEPTH, follow_nodes, form_of
    from posttrain.operations.python.project import OpenProject

    form, out = options["form"], options["out"]
    if form is None:
        form = "tree" if out is None else form_of(out)
    root = workspace_root(options["ledger_at"])
    depth = options["depth"] or (TREE_DEPTH if form == "tree" else None)
    with existing_ledger(options["ledger_at"]) as ledger:
        found = follow_nodes(
            OpenProject(ledger, root),
            names,
            direction,
            cwd=Path.cwd(),
            depth=depth,
            limit=options["limit"] or None,
        )
        text = found.render(form, ledger)
    if out is None:
        click.echo(text, nl=False)
        return
    write_text(out, click.unstyle(text))
    click.echo(f"{len(found.nodes):,} nodes written to {out}", err=True)


@lineage.command(short_help="Compare two runs, stage by stage.")
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
    from posttrain.operations.python.figures import compare_named_runs

    with existing_ledger(ledger_at) as ledger:
        found = compare_named_runs(ledger, before, after)
    if as_json:
        click.echo(json.dumps([as_object(each) for each in found.stages], indent=2))
        return
    if rows := found.rows(everything=everything):
        print_table(found.headings, [_colored(row) for row in rows])
        say_legend("runs")
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


for _command in (impact, licenses, recall, recalls):
    lineage.add_command(_command)
