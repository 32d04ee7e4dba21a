"""`posttrain mlflow rebuild`: the view for people, made anew from the ledger and git's tags."""

from pathlib import Path

import click

from posttrain.cli.options import DocumentedGroup, recipe_argument
from posttrain.pipeline.execution.session import open_session
from posttrain.provenance.lineage.render.view import counted


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
    replaced, so that what people added to it by hand is gone: notes, other experiments and models.

    Examples:
      posttrain mlflow rebuild
      posttrain mlflow rebuild --uri sqlite:////tmp/view.db

    """
    from posttrain.publishing.release.pointers import locked, mirror_again
    from posttrain.publishing.release.registry import Registry
    from posttrain.views.tracking.projection import rebuild as replay

    with open_session(recipe) as session, session.workspace.locked("posttrain mlflow rebuild"):
        place = session.workspace
        with locked(place.state):
            num_stages = replay(session.ledger, place.state, uri=uri)
            where = uri or f"sqlite:///{place.state / 'mlflow.db'}"
            num_releases = mirror_again(place.root, Registry(place.state, where))
    releases = f" and {counted(num_releases, 'release')}" if num_releases else ""
    click.echo(f"rebuilt {counted(num_stages, 'stage run')}{releases}")
