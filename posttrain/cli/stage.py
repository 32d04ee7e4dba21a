"""`posttrain stage run NAME`: what every stage of the generated dvc.yaml calls."""

import os
from pathlib import Path

import click

from posttrain.cli.options import DocumentedGroup
from posttrain.provenance.ledger.location import PARAMS_FILE


@click.group(cls=DocumentedGroup)
def stage() -> None:
    """Work with one stage."""


@stage.command("run", short_help="Run stage NAME on the inputs that are there.")
@click.argument("name")
@click.option(
    "--params",
    default=PARAMS_FILE,
    show_default=True,
    type=click.Path(path_type=Path),
    help="The resolved recipe to take parameters from.",
)
def run_stage(name: str, params: Path) -> None:
    """Run stage NAME on the inputs that lie in the workspace, up to date or not.

    Parameters come from params.yaml, so that `dvc repro` and `dvc exp run -S` decide what runs.
    """
    from posttrain.cli.run import execute
    from posttrain.pipeline.execution.compatibility import refuse_incompatible
    from posttrain.pipeline.execution.session import open_session

    with open_session(params) as session, session.workspace.locked(f"posttrain stage run {name}"):
        session.planner.forced = frozenset({session.require(name)})
        # DVC writes its own lock entry when the stage that it launched returns.
        session.keeps_lock = "DVC_STAGE" not in os.environ
        decisions = session.single(name)
        refuse_incompatible(session.planner, decisions)
        command = f"posttrain stage run {name}"
        execute(session, decisions, local=True, slots=1, command=command)
