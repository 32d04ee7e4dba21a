"""`posttrain schema`: the JSON schema of recipes, for editors."""

import json
from pathlib import Path

import click

from posttrain.cli.files import replacing
from posttrain.cli.options import Documented
from posttrain.pipeline.recipe import RECIPE_FILE, load_recipe
from posttrain.pipeline.recipe_schema import recipe_schema


@click.command(cls=Documented)
@click.option(
    "--flow",
    metavar="MODULE",
    help="Whose recipes [default: the flow of the recipe in this folder, or flows.post_training].",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File to write."
)
def schema(flow: str | None, output: Path | None) -> None:
    """Print the JSON schema of recipes: an editor completes and checks recipe.yaml with it.

    An editor with the YAML language server (VS Code: the extension "YAML" by Red Hat; Neovim,
    Emacs: yaml-language-server) completes and checks a recipe whose first line names the schema:

      posttrain schema -o recipe.schema.json
      # yaml-language-server: $schema=recipe.schema.json

    It knows the parts of the plug-ins that the recipe in this folder names, and of installed
    packages. Write it anew after an update, and after plug-ins or the configs of your own tasks
    changed.

    Examples:
      posttrain schema -o recipe.schema.json
      posttrain schema --flow flows.small | jq .properties.sft

    """
    from posttrain.publishing.release.config import ReleaseConfig

    here = load_recipe(Path()) if Path(RECIPE_FILE).is_file() else None
    named = flow or (here.flow if here else "flows.post_training")
    plugins = here.plugins if here else ()
    made = recipe_schema(named, Path.cwd(), release=ReleaseConfig, plugins=plugins)
    text = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
    if output is None:
        click.echo(text, nl=False)
        return
    with replacing(output) as partial:
        partial.write_text(text, encoding="utf-8")
    click.echo(f"written to {output}", err=True)
