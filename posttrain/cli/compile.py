"""`posttrain compile`: write the files that stock DVC reads."""

from collections.abc import Sequence
from pathlib import Path

import click

from posttrain.cli.options import Documented, overrides_option, recipe_argument
from posttrain.stage.errors import UserError


@click.command("compile", cls=Documented)
@recipe_argument
@overrides_option
@click.option(
    "--check", is_flag=True, help="Write nothing; fail if a file is not what it should be."
)
def compile_(recipe: Path, overrides: Sequence[str], check: bool) -> None:
    """Write dvc.yaml and params.yaml of RECIPE from its flow and its parameters."""
    from posttrain.pipeline.execution.session import open_session
    from posttrain.pipeline.generate import stale_files, write_generated

    with open_session(recipe, overrides) as session:
        files, directory = session.generated(), session.recipe.directory
        if check:
            stale = stale_files(directory, files)
            if stale:
                raise UserError(
                    f"{' and '.join(stale)} in {directory} are stale; run posttrain compile"
                )
            click.echo("dvc.yaml and params.yaml are up to date.")
            return
        changed = write_generated(directory, files)
        click.echo(f"wrote {' and '.join(changed)}" if changed else "nothing changed")
