"""Arguments that several verbs share."""

from pathlib import Path

import click

recipe_argument = click.argument(
    "recipe", default=".", type=click.Path(path_type=Path), metavar="[RECIPE]"
)
overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="STAGE.PARAM=VALUE",
    help="Change one parameter for this run; may be given several times.",
)
slots_option = click.option(
    "--slots",
    type=click.IntRange(min=1),
    help="Stages that may run at once [default: CPU cores / run.threads].",
)
