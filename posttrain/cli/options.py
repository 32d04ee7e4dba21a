"""What several verbs share: arguments, help from docstrings, the form of tables."""

import inspect
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from rich.table import Table


def _named(_context: click.Context, parameter: click.Parameter, given: Any) -> Any:
    """Refuse an empty text, which a shell makes of a variable that is not set."""
    if given == "":
        name = parameter.opts[0] if parameter.opts[0].startswith("-") else "RECIPE"
        raise UserError(f"{name} is empty; name one, or leave it out")
    return Path(given) if given is not None and parameter.name == "recipe" else given


recipe_argument = click.argument("recipe", default=".", callback=_named, metavar="[RECIPE]")
overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="STAGE.PARAM=VALUE",
    help="Change one parameter for this run; may be given several times.",
)
only_option = click.option(
    "--only",
    metavar="STAGE",
    callback=_named,
    help="Run STAGE alone, on the inputs that are there.",
)
from_option = click.option(
    "--from",
    "start",
    metavar="STAGE",
    callback=_named,
    help="Run STAGE and all after it, even if up to date.",
)
slots_option = click.option(
    "--slots",
    type=click.IntRange(min=1),
    help="Stages that may run at once [default: CPU cores / run.threads].",
)


class Documented(click.Command):
    """A command whose docstring is its help, with `Examples:` below the options."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **_split_help(attributes))


class DocumentedGroup(click.Group):
    """A group whose docstring is its help, as those of its commands are theirs."""

    command_class = Documented

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **_split_help(attributes))


def _split_help(attributes: dict[str, Any]) -> dict[str, Any]:
    """Move the examples to the epilog, and keep the lines of paragraphs that have indented ones."""
    text, _, examples = inspect.cleandoc(attributes.get("help") or "").partition("\n\nExamples:\n")
    paragraphs = [f"\b\n{each}" if "\n  " in f"\n{each}" else each for each in text.split("\n\n")]
    epilog = f"\b\nExamples:\n{examples}" if examples else None
    return {**attributes, "help": "\n\n".join(paragraphs), "epilog": epilog}


def plain_table(
    *headings: str, right: Collection[str] = (), unbroken: Collection[str] = ()
) -> "Table":
    """Begin a table without lines; columns `right` are justified so, `unbroken` never wrap."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(
            heading,
            justify="right" if heading in right else "left",
            no_wrap=heading in unbroken,
            overflow="fold",
        )
    return table
