"""`posttrain mlflow rebuild`: the view for people, made anew from the ledger and git's tags."""

import os
from pathlib import Path

import click

from posttrain.cli.options import DocumentedGroup, recipe_argument
from posttrain.stage.errors import UserError, masked
from posttrain.stage.formatting import counted


@click.group(cls=DocumentedGroup)
def mlflow() -> None:
    """Work with the MLflow view of the ledger."""


@mlflow.command(short_help="Recreate the MLflow view in a fresh store.")
@recipe_argument
@click.option("--uri", metavar="URI", help="Another tracking store to fill instead of our own.")
def rebuild(recipe: Path, uri: str | None) -> None:
    """Recreate every run, stage and release of the project in a fresh MLflow store.

    Runs and stages come from the ledger, under new ids of MLflow's; model versions of releases and
    aliases of environments from the tags of git. Curves by step are not made again: they are
    artifacts (curve.parquet, and report.html draws them). Without --uri our own database is
    replaced, so that what people added to it by hand is gone: notes, other experiments and models;
    no server and no run may use it meanwhile. Where MLFLOW_TRACKING_URI names another store, only
    releases that it lacks are added there.

    Examples:
      posttrain mlflow rebuild
      posttrain mlflow rebuild --uri sqlite:////tmp/view.db

    """
    from posttrain.pipeline.execution.session import open_session
    from posttrain.publishing.release.pointers import locked, mirror_again
    from posttrain.publishing.release.registry import Registry
    from posttrain.views.tracking.projection import rebuild as replay

    with open_session(recipe) as session:
        place = session.workspace
        own = f"sqlite:///{place.state / 'mlflow.db'}"
        named = os.environ.get("MLFLOW_TRACKING_URI") or own
        if uri is None and named != own:
            with locked(place.state):
                num_releases = mirror_again(
                    place.root, Registry(place.state, named), session.ledger
                )
            click.echo(
                f"{counted(num_releases, 'release')} at {masked(named)}, which MLFLOW_TRACKING_URI "
                "names; runs there stay as they are, and --uri fills a store with the ledger's"
            )
            return
        if uri is None:
            _require_unused(place.root)
        num_releases = 0

        def add_releases(where: str) -> None:
            nonlocal num_releases
            num_releases = mirror_again(place.root, Registry(place.state, where), session.ledger)

        with place.locked("posttrain mlflow rebuild"), locked(place.state):
            num_stages = replay(session.ledger, place.state, uri=uri, complete=add_releases)
    releases = f" and {counted(num_releases, 'release')}" if num_releases else ""
    click.echo(f"rebuilt {counted(num_stages, 'stage run')}{releases}")


def _require_unused(root: Path) -> None:
    """Refuse to replace a database to which a server or a run of the project writes."""
    from posttrain.operations.maintenance.live import is_held, states, workspace_locks
    from posttrain.operations.services.plan import FOLDER
    from posttrain.operations.services.process import alive

    if alive(root / FOLDER, "mlflow") is not None:
        who, then = "MLflow's server is up and serves", "posttrain down first"
    elif any(is_held(lock) for state in states(root) for lock in workspace_locks(state)):
        who, then = "a command is at work that may write to", "wait for it"
    else:
        return
    raise UserError(f"{who} .posttrain/mlflow.db: {then}, or fill another store with --uri")
