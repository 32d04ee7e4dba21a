"""`posttrain lineage licenses`: under which licenses all that went into something comes."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli.ledger import existing_ledger, ledger_option, workspace_root
from posttrain.cli.options import Documented
from posttrain.cli.tables import colored, print_table
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from posttrain.provenance.ledger import Ledger, StageRun


@click.command(cls=Documented)
@click.argument("node")
@ledger_option
def licenses(node: str, ledger_at: str | None) -> None:
    """Show the license of every file, data set, generator and model that NODE was made from.

    It is what the recipe states (release: {licenses: {NAME: SPDX-ID}}), else what the README of a
    model or data set says of itself, here or in the hub's cache; a generator's is its package's.
    Models that such a README names as its base are listed, too. The gate `license` of a release
    asks for them.

    Examples:
      posttrain lineage licenses data/rl/policy
      posttrain lineage licenses evaluate@latest

    """
    from posttrain.provenance.ledger import ArtifactRecord
    from posttrain.provenance.lineage.artifacts import Finder
    from posttrain.provenance.lineage.names import find_node
    from posttrain.provenance.lineage.queries import up
    from posttrain.publishing.release.inputs import outside_inputs
    from posttrain.publishing.release.licenses import UNKNOWN

    root = workspace_root(ledger_at)
    finder = Finder(root)

    def find(record: ArtifactRecord) -> Path | None:
        return finder.find(record.path, record.digest, record.md5)

    with existing_ledger(ledger_at) as ledger:
        selected = find_node(ledger, node, root=root, cwd=Path.cwd())
        above = up(ledger, selected, limit=None).nodes.values()
        runs = [*filter(None, (ledger.stage_run(each.id) for each in above))]
        found = outside_inputs(runs, _stated(ledger, runs, root), find)
    if not found:
        click.echo("Nothing from outside went into it: every artifact was made by a stage.")
        return
    rows = []
    for each in found:
        known = each.license != UNKNOWN
        license = each.license if known else colored(each.license, "yellow")
        rows.append((license, each.name, each.origin, each.stage))
    print_table(("license", "input", "from", "read by"), rows)
    unknown = sum(each.license == UNKNOWN for each in found)
    if unknown:
        click.echo(f"{counted(unknown, 'license')} of {len(found)} unknown.")


def _stated(ledger: "Ledger", runs: "Iterable[StageRun]", root: Path) -> dict[str, str]:
    """What the recipes of these runs state now; one that cannot be read states nothing."""
    from posttrain.pipeline.recipe import load_recipe
    from posttrain.provenance.ledger.annotations import RECIPE_FOLDER

    folders = ledger.annotations.noted(RECIPE_FOLDER)
    stated: dict[str, str] = {}
    for folder in sorted({folders[each.run_id] for each in runs if each.run_id in folders}):
        with suppress(UserError):
            given = load_recipe(root / folder).release.get("licenses") or {}
            stated |= {str(name): str(license) for name, license in given.items()}
    return stated
