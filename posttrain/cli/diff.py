"""`posttrain diff`: what changed, which figures moved, which gates hold; for people and for CI."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli import diff_shown as shown
from posttrain.cli.notify import tell_of_gates
from posttrain.cli.options import Documented

if TYPE_CHECKING:
    from collections.abc import Sequence

    from posttrain.pipeline.execution.session import Session
    from posttrain.publishing.release.config import AnyGate
    from posttrain.publishing.release.gates.base import GateResult


@click.command(cls=Documented)
@click.argument("before", metavar="A")
@click.argument("after", metavar="[B]", default=".")
@click.option(
    "--recipe", default=".", type=click.Path(path_type=Path), help="Folder of the recipe."
)
@click.option("--markdown", is_flag=True, help="Write Markdown, as a comment on a pull request.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--no-gates", is_flag=True, help="Decide no gates; exit with 0.")
def diff(
    before: str, after: str, recipe: Path, markdown: bool, as_json: bool, no_gates: bool
) -> None:
    """Compare two states of a recipe: what changed, which figures moved, which gates hold.

    A and B are each a run (an id or its beginning, latest, latest~1), a release (NAME@VERSION,
    NAME#ENVIRONMENT), a branch, tag or commit of git with a posttrain.lock, or `.`, the workspace,
    which B is where it is left out.

    The gates are those of the recipe, and decide on what the workspace holds: they are asked where
    B is the workspace. Exits with 1 where one fails, with 2 where something cannot be compared.

    Examples:
      posttrain diff latest~1 latest             the last run against the one before
      posttrain diff main                        what lies here against what main holds
      posttrain diff math-policy@v0.1.0          ... against a release, with the gates
      posttrain diff origin/main --markdown      for a pull request: posttrain init --ci github

    """
    from posttrain.pipeline.execution.session import open_session
    from posttrain.provenance.lineage.artifacts import Finder
    from posttrain.publishing.changes import WORKSPACE, changes_between, state_named

    with open_session(recipe) as session:
        root, folder = session.workspace.root, session.recipe.directory
        states = [state_named(session.ledger, folder, root, name) for name in (before, after)]
        finder = Finder(root)
        change = changes_between(states[0], states[1], finder)
        finder.remember()
        decided = _gates(session) if after == WORKSPACE and not no_gates else []
        if after == WORKSPACE and (stale := _out_of_date(session)):
            change = replace(change, remarks=[*change.remarks, stale])
    if as_json:
        click.echo(json.dumps(shown.as_object(change, decided), indent=2))
    elif markdown:
        click.echo(shown.in_markdown_of(change, decided), nl=False)
    else:
        shown.print_change(change, decided)
    if failed := [gate.name for gate, result in decided if not result.passed]:
        tell_of_gates(recipe, failed)
        sys.exit(1)


def _out_of_date(session: "Session") -> str:
    """A sentence on stages that the code and the recipe as they are now would run; or nothing."""
    behind = [each.stage for each in session.planner.plan() if each.action in ("run", "pending")]
    if not behind:
        return ""
    return (
        f"{', '.join(behind)}: the code or the recipe is newer than what lies here, so the figures"
        " are of before; posttrain run, and commit the locks"
    )


def _gates(session: "Session") -> "Sequence[tuple[AnyGate, GateResult]]":
    """Decide every gate of the recipe; none where it asks for none."""
    if not session.recipe.release:
        return []
    from posttrain.publishing.release.candidate import check_gates
    from posttrain.publishing.release.names import choose_tag
    from posttrain.publishing.release.tags import release_tags

    tag = choose_tag(session.recipe.name.replace("_", "-"), release_tags(session.workspace.root))
    return check_gates(session, tag).decided
