"""`posttrain schema`: the JSON schema of recipes, for editors."""

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli.files import replacing
from posttrain.cli.options import Documented
from posttrain.provenance.ledger.location import RECIPE_FILE, project_root
from posttrain.stage.errors import UserError, shown

if TYPE_CHECKING:
    from posttrain.pipeline.recipe import Recipe


@click.command(cls=Documented)
@click.option(
    "--flow",
    metavar="MODULE",
    help="Whose recipes [default: the flow of the project's recipe, or flows.post_training].",
)
@click.option(
    "--recipe",
    type=click.Path(path_type=Path),
    help="Whose flow and plug-ins count [default: the nearest, from this folder up].",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File to write."
)
def schema(flow: str | None, recipe: Path | None, output: Path | None) -> None:
    """Print the JSON schema of recipes: an editor completes and checks recipe.yaml with it.

    An editor with the YAML language server (VS Code: the extension "YAML" by Red Hat; Neovim,
    Emacs: yaml-language-server) completes and checks a recipe whose first line names the schema:

      posttrain schema -o recipe.schema.json
      # yaml-language-server: $schema=recipe.schema.json

    It knows the parts of the plug-ins that the recipe names, and of installed packages. Write it
    anew after an update, and after plug-ins or the configs of your own tasks changed.

    Examples:
      posttrain schema -o recipe.schema.json
      posttrain schema --flow flows.small | jq .properties.sft
      posttrain schema --recipe recipes/mine -o recipes/mine/recipe.schema.json

    """
    from posttrain.pipeline.recipe_schema import recipe_schema
    from posttrain.publishing.release.config import ReleaseConfig

    of, root = recipe_and_root(recipe)
    named = flow or (of.flow if of else "flows.post_training")
    plugins = of.plugins if of else ()
    made = recipe_schema(named, root, release=ReleaseConfig, plugins=plugins)
    text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    with replacing(output) as partial:
        partial.write_text(text, encoding="utf-8")
    click.echo(f"written to {output}", err=True)


def recipe_and_root(given: Path | None) -> "tuple[Recipe | None, Path]":
    """Load the recipe that an option names, or the nearest one at or above this folder.

    The code of its project can be imported afterwards.

    Args:
        given: A recipe's file or folder; None looks from this folder up to the project's root.

    Returns:
        The recipe, or None where there is none, and the root of its project. Outside any project
        the root is this folder.

    """
    from posttrain.pipeline.flow import let_import
    from posttrain.pipeline.recipe import load_recipe
    from posttrain.pipeline.workspace import Workspace

    if given is None:
        here = Path.cwd()
        root = here
        with contextlib.suppress(UserError):
            root = project_root(here)
        inside = [each for each in (here, *here.parents) if each.is_relative_to(root)]
        given = next((each for each in inside if (each / RECIPE_FILE).is_file()), None)
        if given is None:
            return None, root
    recipe = load_recipe(Path(shown(given)))
    root = Workspace.of(recipe).root
    let_import(root)
    return recipe, root
