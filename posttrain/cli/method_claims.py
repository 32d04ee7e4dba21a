"""`posttrain method claims`: every claim, what it was compared with, and what became of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement

from posttrain.cli.options import plain_table
from posttrain.methods.find import FoundMethod, find_method, has_method, methods_of
from posttrain.methods.method import FAMILIES
from posttrain.pipeline.recipe_values import RecipeValues
from posttrain.pipeline.verdicts import (
    NOT_IN_HISTORY,
    gone_of_project,
    kept_verdicts,
    standing_verdicts,
)
from posttrain.stage.files import replacing
from posttrain.stage.formatting import counted
from posttrain.views.report.claims import (
    HEADING,
    ClaimFigure,
    ClaimRow,
    claims_in_markdown,
    claims_page,
    legend_of_claims,
    tally_of_claims,
)

_STYLES = {"confirmed": "green", "refuted": "red"}
_WIDEST = 1000
"""Columns that no line of the table needs."""


def claim_rows(methods: Sequence[FoundMethod], root: Path | None) -> list[ClaimRow]:
    """Gather what is known of every claim.

    Args:
        methods: Whose claims.
        root: The project, to tell which verdicts are stale, and of commits that its history has
            not; None does not look.

    Returns:
        A row each, by family, method and the order in its file.

    """
    kept = kept_verdicts()
    standing = standing_verdicts(methods, root) if root else {}
    gone = gone_of_project(kept.values(), root) if root else frozenset()
    families = list(FAMILIES)
    by_family = sorted(methods, key=lambda each: families.index(each.method.family))
    rows = []
    for found in by_family:
        for claim in found.method.claims:
            said = (found.method.family, found.method.name, claim.name, claim.says, claim.arena)
            known = kept.get((found.method.name, claim.name))
            compared = tuple(
                f"{'than ' * (each.than is not None)}{each.compared_with(claim.against)}"
                for each in claim.decide
            )
            if known is None:
                rows.append(ClaimRow(*said, compared=compared))
                continue
            row = ClaimRow(
                *said,
                verdict=known.verdict,
                stale=standing.get((known.method, known.claim), "").startswith("stale"),
                sentence=known.sentence,
                figures=tuple(map(ClaimFigure.read, known.decisions)),
                compared=compared,
                seeds=known.seeds,
                minutes=known.minutes,
                commit=known.commit or None,
                rechecked=known.rechecked or None,
                gone=tuple(at for at in known.commits if at in gone),
            )
            rows.append(row)
    return rows


def claims_of_recipe(recipe: RecipeValues, root: Path) -> list[ClaimRow]:
    """Gather what is known of the claims of the methods that a recipe names.

    Args:
        recipe: One that names a method at its top, or algorithms in its sections; in the recipe of
            a claim that claim's own method is named too.
        root: The project.

    Returns:
        A row each, by family; none where what is named claims nothing.

    """
    names: list[Any] = [recipe.method]
    if recipe.is_of_claim:
        names.append(recipe.name.partition(".")[0])
    for section in recipe.sections.values():
        said = section.get("algorithm")
        names.append(said.get("preset") if isinstance(said, Mapping) else said)
    with methods_of(root, recipe.plugins):
        named = [name for name in dict.fromkeys(filter(None, names)) if has_method(name)]
        claiming = [each for each in map(find_method, named) if each.method.claims]
        return claim_rows(claiming, root) if claiming else []


def show_claims(rows: Sequence[ClaimRow], output: str, page: Path | None) -> None:
    """Print claims, or write their page.

    Args:
        rows: Of `claim_rows`.
        output: table, json or markdown.
        page: Where the page of HTML goes; None writes none.

    """
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
