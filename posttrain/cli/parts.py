"""`posttrain parts`: what may stand in a recipe's slots, and where it comes from."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from posttrain.cli.options import Documented, plain_table

if TYPE_CHECKING:
    from posttrain.pipeline.slots import (
        OfferedPart,
    )

_COLUMNS = ("slot", "kind", "what it does", "source", "from")


@click.command(cls=Documented)
@click.argument("slots", nargs=-1, metavar="[SLOT]...")
@click.option(
    "--recipe",
    type=click.Path(path_type=Path),
    help="Whose plug-ins are listed too [default: the nearest, from this folder up].",
)
@click.option("--tsv", is_flag=True, help="Print tab-separated lines, with a heading.")
def parts(slots: Sequence[str], recipe: Path | None, tsv: bool) -> None:
    """List the parts that a recipe may name: kind, purpose, source and origin.

    Those of plug-ins and of installed packages are listed too, broken ones with the reason. Where a
    slot is named, so are the fields of its parts, with the default behind what they mean.

    Into a pipe or a file, where no slot is named, it prints a line for each part in place of the
    table: slot, kind, the first sentence on it and its source, with tabs between them and no
    heading. The kind of a part may stand in place of its slot: then it alone is shown, in every
    slot that has it.

    A slot is a place in a recipe for one of several parts, and a part is written as its kind, or as
    a mapping with a kind and the values of its fields:

      rl: {temperature: {from: 1.0, to: 0.6, over: 100, shape: cosine}}
      rl: {temperature: {from: 1.0, to: 0.6, over: 100, shape: {kind: step, jumps: 4}}}

    To add a part of your own, write a module with PARTS = {"slot": {"kind": YourPart}} at the root
    of the project and name it in the recipe: plugins: [your_module]. docs/extending.md has one for
    every slot. Parts of installed packages (entry points of the group posttrain.parts) need no such
    line.

    Examples:
      posttrain parts                 every slot
      posttrain parts | grep length   a line for each part, to search in
      posttrain parts player context_manager   two of them, with what may be set
      posttrain parts clip            the part of a kind, whatever its slot
      posttrain parts schedule        one of them; of this one also the numbers that take a schedule
      posttrain parts --recipe recipes/mine   with the plug-ins of that recipe
      posttrain parts --tsv | cut -f1,2

    """
    from posttrain.cli.schema import recipe_and_root
    from posttrain.pipeline.recipe_schema import schedulable_fields
    from posttrain.pipeline.slots import SLOTS, OfferedPart, offered_parts, parts_of_kind

    of, root = recipe_and_root(recipe)
    plugins = of.plugins if of else ()
    found = list[OfferedPart]()
    for name in slots:
        found += offered_parts([name], plugins) if name in SLOTS else parts_of_kind(name, plugins)
    if not slots:
        found += offered_parts((), plugins)
    names = [name for name in slots if name in SLOTS]
    if tsv:
        rows = [(each.slot, each.kind, each.summary, each.source, each.origin) for each in found]
        _print_lines([_COLUMNS, *rows])
        return
    if not slots and not sys.stdout.isatty():
        _print_lines((each.slot, each.kind, each.summary, each.source) for each in found)
        return
    console = Console(highlight=False)
    console.print(_table(found, with_fields=bool(slots)))
    if "schedule" in names:
        flow = of.flow if of else "flows.post_training"
        console.print(f"\nNumbers that take a schedule in recipes of {flow}:")
        for place, kind, fields in schedulable_fields(flow, root):
            console.print(f"  {place}{f' ({kind})' if kind else ''}: {', '.join(fields)}")


def _print_lines(rows: Iterable[Sequence[str]]) -> None:
    for row in rows:
        click.echo("\t".join(" ".join(cell.split()) for cell in row))


def _table(found: "Sequence[OfferedPart]", *, with_fields: bool) -> Table:
    from posttrain.pipeline.slots import SLOTS, find_slot, first_sentence

    table = plain_table("kind", "what it does", "source", "from", unbroken=("from",))
    table.padding = (0, 2, 0, 0)
    # Of a long kind, the end goes to the next line: what it does is what people come for.
    table.columns[0].max_width = 24
    table.columns[1].ratio, table.columns[2].ratio = 3, 2
    slot = ""
    for each in found:
        if each.slot != slot:
            if slot:
                table.add_row()
            slot = each.slot
            known = slot in SLOTS
            purpose = first_sentence(find_slot(slot).base.__doc__ or "") if known else ""
            table.add_row(f"[bold]{slot}[/]", f"[bold]{escape(purpose)}[/]")
        table.add_row(
            f"  {each.kind}", escape(each.summary), f"[dim]{escape(each.source)}[/]", each.origin
        )
        for name, usual, text in each.fields() if with_fields else ():
            told = f" ({usual})" if usual else ""
            table.add_row(f"    {name}", f"[dim]{escape(f'{text}{told}')}[/]")
    return table
