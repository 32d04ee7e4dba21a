"""`posttrain init`: a new project."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli.format_options import columns_option, format_option, stated_format
from posttrain.cli.options import Documented
from posttrain.stage.errors import UserError

if TYPE_CHECKING:
    from posttrain.operations.project.data_recipe import BroughtData


@click.command(cls=Documented)
@click.argument("folder", type=click.Path(path_type=Path), metavar="[DIR]", required=False)
@click.option(
    "--data",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write a recipe for this file of conversations, questions, preferences or labels;"
    " may be given several times.",
)
@click.option(
    "--model",
    type=click.Path(path_type=Path),
    help="With --data: folder of the model to start from.",
)
@format_option
@columns_option
@click.option(
    "--ci",
    "forge",
    type=click.Choice(["github", "gitlab"]),
    help="Write the job that comments on proposed changes; alone, into the project around you.",
)
def init(
    folder: Path | None,
    files: Sequence[Path],
    model: Path | None,
    kind: str | None,
    columns: Sequence[str],
    forge: str | None,
) -> None:
    """Write a new project into DIR, which must be empty or not there yet.

    It has a recipe that runs in a minute, a flow, a task of its own with a test, and is a git and
    DVC repository. It uses the tasks that come with posttrain and adds to them.

    With --data its recipe is for files of yours, which stay where they are: conversations and
    questions fine-tune the model, preferences train a reward model and DPO, labels KTO. Without
    --model a tiny model is trained from nothing, to try the whole. `posttrain data inspect FILE`
    says how the file is read.

    With --ci, a pull request is compared with the branch that it goes to, by `posttrain diff`, and
    the outcome is written below it; without DIR that file alone is added to the project around you.

    Examples:
      posttrain init sums             a folder `sums` here
      cd sums && make run             its recipe: a minute, then a table and report.html
      make test                       its tests
      posttrain init mine --data chats.jsonl --model ../qwen
      posttrain init mine --data pairs.parquet --model ../qwen --as preference
      posttrain init --ci github      in a project: .github/workflows/posttrain.yml

    """
    from posttrain.operations.project.ci import write_ci
    from posttrain.operations.project.create import create

    if folder is None:
        if forge is None:
            raise UserError("name a folder for the new project: posttrain init DIR")
        click.echo(f"{write_ci(Path.cwd(), forge)}: commit it")
        return
    written = create(folder, _brought(files, model, kind, columns))
    if forge is not None:
        write_ci(folder, forge)
    there = shlex.quote(str(folder))
    click.echo(f"{folder}: {len(written)} files. Next: cd {there} && make run && make test")
    click.echo("Then commit it: git add -A && git commit -m 'A new project'")
    inside = folder.resolve()
    outside = [each for each in (*files, model) if each and inside not in each.resolve().parents]
    if outside:
        names = " and ".join(map(str, outside))
        click.echo(
            f"note: {names} stay where they are, and a clone of the project looks for them at the"
            " same places beside it; to share them, or to release what is made of them, put them"
            " into the project, `dvc add` them and name them so in recipe.yaml",
            err=True,
        )


def _brought(
    files: Sequence[Path], model: Path | None, kind: str | None, columns: Sequence[str]
) -> "BroughtData | None":
    """What the project is for, where files are named."""
    if not files:
        if model is not None or kind is not None or columns:
            raise UserError("--model, --as and --column say how a file is learned; name it: --data")
        return None
    from posttrain.operations.project.data_recipe import BroughtData

    return BroughtData(tuple(files), model, stated_format(kind, columns))
