"""Tell whom a recipe names: of the end of a run, and of gates that fail."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from posttrain.pipeline.execution.session import Session
    from posttrain.pipeline.notices import Event


def tell_of_run(session: "Session", event: "Event", error: str = "") -> None:
    """Tell of a run's end as the recipe's section `notify` asks, and say what came of it.

    Args:
        session: Whose last run it is.
        event: How it ended.
        error: What went wrong.

    """
    from posttrain.pipeline.notices import notice_settings, tell

    run = next(iter(session.ledger.runs(1)), None)
    notice = {
        "recipe": session.recipe.name,
        "run": None if run is None else run.id,
        "command": None if run is None else run.command,
        "error": error or None,
    }
    settings = notice_settings(session.recipe.notify)
    if said := tell(settings, event, notice, session.workspace.root):
        click.echo(said, err=True)


def tell_of_gates(recipe: Path, failed: "Sequence[str]") -> None:
    """Tell of gates that fail as the recipe's section `notify` asks, and say what came of it.

    Args:
        recipe: Its folder.
        failed: Names of the gates.

    """
    from posttrain.pipeline.notices import notice_settings, tell
    from posttrain.pipeline.recipe import load_recipe
    from posttrain.provenance.ledger.location import project_root

    loaded = load_recipe(recipe)
    notice = {"recipe": loaded.name, "failed": list(failed), "command": " ".join(sys.argv[1:])}
    root = project_root(loaded.directory)
    if said := tell(notice_settings(loaded.notify), "gates", notice, root):
        click.echo(said, err=True)
