"""`posttrain why`: the first thing that made a stage run again, or will make it."""

from pathlib import Path

import click

from posttrain.cli.options import Documented, overrides_option, recipe_argument

_COLORS = {"+": "green", "-": "red", "@": "cyan"}


@click.command(cls=Documented)
@click.argument("stage")
@recipe_argument
@click.option(
    "--between",
    nargs=2,
    metavar="RUN RUN",
    help="Compare the stage in two runs: an id, the start of one, latest or latest~N.",
)
@overrides_option
@click.option("-v", "--verbose", is_flag=True, help="Every difference, with both values.")
def why(
    stage: str,
    recipe: Path,
    between: tuple[str, str] | None,
    overrides: tuple[str, ...],
    verbose: bool,
) -> None:
    """Name the first part of STAGE's key that differs, with both values; code as a diff.

    Of a variable that the recipe declares only hashes of its values are kept, and shown.

    Without --between: between its last record and now, where it would run; where it is up to date,
    between its last two executions.

    Examples:
      posttrain why rl                          what will make it run, or made it run the last time
      posttrain why rl -v                       every difference, with every diff
      posttrain why rl --between latest~1 latest

    """
    from posttrain.operations.python.causes import explain_stage
    from posttrain.pipeline.execution.session import open_session

    with open_session(recipe, overrides) as session:
        found = explain_stage(session, stage, between=between, verbose=verbose)
        for line in found.lines(verbose=verbose, paint=_colored):
            click.echo(line)


def _colored(line: str) -> str:
    color = _COLORS.get(line[:1])
    return click.style(line, fg=color) if color else line
