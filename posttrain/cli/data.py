"""`posttrain data`: look at files of rows before anything is computed with them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from posttrain.cli.format_options import columns_option, format_option, stated_format
from posttrain.cli.options import DocumentedGroup, plain_table
from posttrain.stage.errors import UserError
from posttrain.stage.escapes import printable
from posttrain.stage.formatting import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from posttrain.data.contexts import LearnedTurns
    from posttrain.learning.training.lengths import MaxLength
    from posttrain.operations.inspect_data import Encoding, Inspection, ShownRow
    from posttrain.pipeline.recipe import Recipe
    from posttrain.stage.spec import Dag

_MOST_TOKENS, _HEAD, _TAIL = 120, 80, 30
"""Tokens of a span that are shown: all, or so many of its beginning and of its end."""


@click.group(cls=DocumentedGroup)
def data() -> None:
    """Look at files of rows: what format they are, what is learned of them."""


class Limit(NamedTuple):
    """A number of a recipe that cuts rows off."""

    field: str
    part: str
    """What it limits: the whole row, or an answer."""
    most: "MaxLength"
    """In tokens; `auto` goes by the rows themselves."""

    def tokens(self, found: "Inspection") -> int:
        """The most tokens that rows of this file may have.

        Args:
            found: What was found in it.

        """
        from posttrain.learning.training.lengths import limit_of_rows

        return limit_of_rows(self.most, found.lengths["whole row"], ()).tokens


@data.command("inspect", short_help="Say how FILE is read, how long its rows are, and show one.")
@click.argument("file", type=click.Path(path_type=Path))
@format_option
@columns_option
@click.option("--split", default="", help="Split of a data set that has several.")
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    help="Folder of a model, whose tokenizer and chat template make the tokens.",
)
@click.option(
    "--recipe",
    type=click.Path(path_type=Path),
    help="Recipe whose limits, template, model and plug-ins count.",
)
@click.option("--row", type=click.IntRange(min=1), help="Row to show, by its line or number.")
def inspect_(**options: Any) -> None:
    """Say what FILE holds, before anything runs: format, columns, lengths, duplicates, one row.

    FILE is JSONL, JSON, CSV, TSV, text or parquet, packed with .gz or .zst or not, a folder of
    such, or the folder of a saved data set. Nothing is guessed between two formats: say which with
    --as. With --model lengths are in tokens, and a row is shown as the tokens that training sees:
    lines that begin with + bear loss, lines with - do not. Rows that cannot be read are named, the
    first five with what is wrong, and end the command with exit code 2. --recipe takes the recipe
    of a project.

    Examples:
      posttrain data inspect chats.jsonl
      posttrain data inspect chats.jsonl --model ../qwen --row 17
      posttrain data inspect mine.csv --as prompt_completion --column prompt=q --column completion=a
      posttrain data inspect pairs.parquet --recipe recipe.yaml

    """
    from rich.console import Console

    from posttrain.operations.inspect_data import inspect_file
    from posttrain.stage.slots import plugged

    recipe, dag = _recipe(options["recipe"])
    with plugged(recipe.plugins if recipe else ()):
        found = inspect_file(
            options["file"],
            wanted=stated_format(options["kind"], options["columns"]),
            split=options["split"],
            encoding=_encoding(options["model"], dag),
            line=options["row"],
        )
    console = Console(highlight=False, soft_wrap=True)
    _print_rows(console, options["file"], found)
    _print_lengths(console, found, _limits(dag))
    for row in found.shown:
        _print_tokens(console, row)
    if found.num_broken:
        raise UserError(
            f"{options['file']}: {found.num_broken:,} of {counted(found.num_rows, 'row')} cannot be"
            f" read, which stops a run; mend these lines, or leave them out: {found.broken[0]}"
        )


def _recipe(given: Path | None) -> "tuple[Recipe | None, Dag | None]":
    if given is None:
        return None, None
    from posttrain.cli.schema import recipe_and_root

    recipe, root = recipe_and_root(given)
    return recipe, recipe.resolve(root) if recipe else None


def _encoding(model: Path | None, dag: "Dag | None") -> "Encoding | None":
    """The tokenizer of the model that is given, or of the recipe's, with the recipe's template."""
    stages = dag.stages if dag else {}
    if model is None:
        inputs = stages["import_model"].inputs if "import_model" in stages else {}
        reference = inputs.get("files.model")
        model = reference.path if reference else None
    if model is None:
        return None
    from posttrain.learning.models.load import load_tokenizer
    from posttrain.operations.inspect_data import Encoding

    tokenizer = load_tokenizer(model)
    turns: LearnedTurns = "last"
    for stage in stages.values():
        template = getattr(stage.config, "template", None)
        if template is not None:
            template.give_to(tokenizer, where=stage.name)
        turns = getattr(stage.config, "turns", turns)
    return Encoding(tokenizer, turns)


def _limits(dag: "Dag | None") -> list[Limit]:
    """What a recipe's stages cut off; without a recipe, what training does by default."""
    if dag is None:
        return [Limit("max_length auto, the default", "whole row", "auto")]
    found = []
    for name, part in (("max_length", "whole row"), ("max_tokens", "answer")):
        for stage in dag.stages.values():
            most = getattr(stage.config, name, None)
            if isinstance(most, int):
                found.append(Limit(f"{stage.name}.{name}", part, most))
            elif most == "auto" and name == "max_length":
                found.append(Limit(f"{stage.name}.{name} auto", part, "auto"))
    return found


def _print_rows(console: "Console", file: Path, found: "Inspection") -> None:
    console.print(f"{file}: {counted(found.num_rows, 'row')}", markup=False)
    console.print(f"read as {found.reading}", markup=False)
    of = found.reading.format.FORM.WHAT
    table = plain_table("rows", "what", right=["rows"])
    table.show_header = False
    table.add_row(f"  {found.num_usable:,}", f"usable {of}")
    for reason, count in found.left_out.most_common():
        table.add_row(f"  {count:,}", f"left out: {reason}")
    if found.num_broken:
        table.add_row(f"  {found.num_broken:,}", "cannot be read, which stops a run:")
    console.print(table)
    for complaint in found.broken:
        console.print(f"    {complaint}", markup=False)


def _print_lengths(console: "Console", found: "Inspection", limits: "Sequence[Limit]") -> None:
    spreads = found.spreads()
    if not spreads:
        return
    numbers = ("p50", "p95", "max")
    of = "" if found.num_measured == found.num_usable else f" of the first {found.num_measured:,}"
    console.print(f"\nlengths in {found.unit}{of}")
    table = plain_table("", *numbers, right=numbers)
    for name in ("prompt", *(each for each in spreads if each not in ("prompt", "whole row"))):
        table.add_row(f"  {name}", *_row_of(spreads[name]))
    table.add_row("  whole row", *_row_of(spreads["whole row"]))
    console.print(table)
    if found.unit == "characters":
        console.print("  give --model DIR for lengths in tokens, and a row as training sees it")
        return
    for limit in limits:
        parts = [limit.part] if limit.part in spreads else ["chosen", "rejected"]
        most = limit.tokens(found)
        for part in (each for each in parts if each in spreads):
            over, total = found.over(part, most), len(found.lengths[part])
            of = "rows" if part == "whole row" else f"{part}s" if part == "answer" else part
            share = f"  {over:,} of {total:,} {of} ({over / total:.1%})"
            console.print(f"{share} are longer than {limit.field} ({most})", markup=False)


def _row_of(spread: Any) -> list[str]:
    return [f"{each:,}" for each in (spread.median, spread.p95, spread.longest)]


def _print_tokens(console: "Console", row: "ShownRow") -> None:
    counted = {True: 0, False: 0}
    for span in row.spans:
        counted[span.learned] += len(span.tokens)
    what = f", {row.side}" if row.side else ""
    console.print(
        f"\n{row.where}{what}: {sum(counted.values())} tokens, {counted[True]} bear loss (+)",
        markup=False,
    )
    for span in row.spans:
        console.print(_shown(span.tokens, learned=span.learned))


def _shown(tokens: Sequence[str], *, learned: bool) -> "Text":
    """One line of tokens: each told from the next by a bar, and by its shade."""
    from rich.text import Text

    left_out = len(tokens) - _HEAD - _TAIL if len(tokens) > _MOST_TOKENS else 0
    kept = [*tokens[:_HEAD], f"... {left_out} more ...", *tokens[-_TAIL:]] if left_out else tokens
    styles = ("bold green", "green") if learned else ("dim", "dim italic")
    line = Text("  + " if learned else "  - ", style=styles[0])
    for number, token in enumerate(kept):
        if number:
            line.append("|", style="dim")
        # Control characters would be obeyed by a terminal, and break the line.
        line.append(printable(token), style=styles[number % 2])
    return line
