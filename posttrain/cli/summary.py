"""What a person reads when a run is over."""

import click

from posttrain.execution.session import Session


def show_summary(session: Session, seconds: float) -> None:
    """Print where things are; figures and the report page follow from the artifacts."""
    click.echo(f"Done in {seconds:.1f} s.", err=True)
