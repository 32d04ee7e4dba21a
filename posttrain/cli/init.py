"""`posttrain init`: a new project."""

from pathlib import Path

import click

from posttrain.cli.options import Documented


@click.command(cls=Documented)
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
def init(folder: Path) -> None:
    """Write a new project into DIR, which must be empty or not there yet.

    It has a recipe that runs in a minute, a flow, a task of its own with a test, and is a git and
    DVC repository. It uses the tasks that come with posttrain and adds to them.

    Examples:
      posttrain init sums             a folder `sums` here
      cd sums && make run             its recipe: a minute, then a table and report.html
      make test                       its tests

    """
    from posttrain.operations.project.create import create

    files = create(folder)
    click.echo(f"{folder}: {len(files)} files. Next: cd {folder} && make run && make test")
    click.echo("Then commit it: git add -A && git commit -m 'A new project'")
