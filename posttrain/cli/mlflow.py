"""`posttrain mlflow rebuild`: the view for people, made anew from the ledger."""

from pathlib import Path

import click

from posttrain.cli.options import DocumentedGroup, recipe_argument
from posttrain.pipeline.execution.session import open_session


@click.group(cls=DocumentedGroup)
def mlflow() -> None:
    """Work with the MLflow view of the ledger."""


@mlflow.command(short_help="Recreate the MLflow view in a fresh store.")
@recipe_argument
@click.option("--uri", metavar="URI", help="Another tracking store to fill instead of our own.")
def rebuild(recipe: Path, uri: str | None) -> None:
    """Recreate every run and stage of the ledger in a fresh MLflow store."""
    from posttrain.views.tracking.projection import rebuild as replay

    with open_session(recipe) as session, session.workspace.locked("posttrain mlflow rebuild"):
        told = replay(session.ledger, session.workspace.state, uri=uri)
        click.echo(f"rebuilt {told} stage runs")
