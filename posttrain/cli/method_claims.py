"""`posttrain method claims`: every claim, what it was compared with, and what became of it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement

from posttrain.cli.options import plain_table
from posttrain.methods.find import FoundMethod
from posttrain.methods.method import FAMILIES
from posttrain.pipeline.gathered_claims import claim_rows
from posttrain.pipeline.verdicts import NOT_IN_HISTORY
from posttrain.stage.files import replacing
from posttrain.stage.formatting import counted
from posttrain.views.report.claims import (
    HEADING,
    ClaimRow,
    claims_in_markdown,
    claims_page,
    legend_of_claims,
    tally_of_claims,
)

_STYLES = {"confirmed": "green", "refuted": "red"}
_WIDEST = 1000
"""Columns that no line of the table needs."""


def show_claims(methods: Sequence[FoundMethod], root: Path, output: str, page: Path | None) -> None:
    """Print the claims of methods, or write their page.

    Args:
        methods: Whose claims.
        root: The project, by which verdicts are stale or not.
        output: table, json or markdown.
        page: Where the page of HTML goes; None writes none.

    """
    rows = claim_rows(methods, root)
    if page is not None:
        with replacing(page) as partial:
            partial.write_text(claims_page(rows, FAMILIES), encoding="utf-8")
        click.echo(f"{page}: {tally_of_claims(rows)}")
    elif output == "json":
        click.echo(json.dumps([asdict(row) for row in rows], indent=2))
    elif output == "markdown":
        click.echo(claims_in_markdown(rows), nl=False)
    else:
        _print(rows)


def _print(rows: Sequence[ClaimRow]) -> None:
    console = Console(highlight=False)
    table = plain_table(*HEADING, unbroken=HEADING)
    verdict = HEADING.index("verdict")
    figure = verdict - 1
    for row in rows:
        cells = [escape(cell) for cell in row.cells()]
        if style := _STYLES.get(row.verdict):
            cells[verdict] = f"[{style}]{cells[verdict]}[/]"
        cells[figure] = cells[figure].replace("; ", "\n")
        table.add_row(*cells)
    # Names are to be searched for and copied: where they need more columns than the terminal has,
    # lines are longer than it is.
    needed = Measurement.get(console, console.options.update(max_width=_WIDEST), table).maximum
    console.width = max(console.width, needed)
    console.print(table)
    console.print(tally_of_claims(rows))
    for line in legend_of_claims(rows):
        console.print(f"  {line}", markup=False)
    if gone := sum(row.commit in row.gone for row in rows):
        console.print(f"{counted(gone, 'verdict')} of a commit that is {NOT_IN_HISTORY}")
