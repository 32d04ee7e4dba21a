"""`posttrain push` and `posttrain pull`: artifacts and ledger by way of the DVC remote."""

from pathlib import Path

import click

from posttrain.cli.options import Documented, recipe_argument

remote_option = click.option(
    "-r", "--remote", default="", metavar="NAME", help="The DVC remote; the default one without it."
)


@click.command(cls=Documented)
@recipe_argument
@remote_option
def push(recipe: Path, remote: str) -> None:
    """Send the artifacts of RECIPE and the ledger to a DVC remote, the default one or NAME.

    Artifacts are those that posttrain.lock names: what lies in the workspace since the last run.
    What the remote has is not sent again. Commit posttrain.lock with dvc.lock: a clone at that
    commit finds these stages up to date, and fetches their bytes when they are needed.

    Examples:
      dvc remote add --default team s3://bucket/project
      posttrain run && posttrain push
      git add dvc.yaml params.yaml dvc.lock posttrain.lock metrics.json plots && git commit

    """
    from posttrain.operations import exchange
    from posttrain.pipeline.execution.session import open_session

    with open_session(recipe) as session:
        workspace = session.workspace
        sent = exchange.push(
            workspace.root, workspace.recipe_dir, session.ledger, remote_name=remote
        )
    click.echo(
        f"{sent.artifacts} artifacts are in the remote '{sent.remote}', {sent.new} of them new,"
        f" and {sent.records:,} records of the ledger."
    )


@click.command(cls=Documented)
@recipe_argument
@remote_option
def pull(recipe: Path, remote: str) -> None:
    """Fetch what others pushed: their ledgers, and the artifacts of RECIPE as it stands here.

    Stages that are not up to date are left as they are: nothing is run, and `posttrain plan` says
    what differs. `posttrain run` fetches by itself what it needs; pull brings everything now, so
    that you can go on without a network.

    Examples:
      git clone ... && cd project && posttrain pull
      posttrain pull recipes/gsm8k
      posttrain pull -r backup                    from another remote than the default one

    """
    from posttrain.cli.run import execute
    from posttrain.operations.exchange import bring_objects, pull_ledgers
    from posttrain.pipeline.execution.session import open_session

    with open_session(recipe) as session, session.workspace.locked("posttrain pull"):
        workspace = session.workspace
        ledgers, records = pull_ledgers(workspace.root, session.ledger, remote_name=remote)
        if remote:
            # What is in the cache need not come from the default remote.
            bring_objects(workspace.root, workspace.recipe_dir, remote)
        decisions = session.planner.plan()
        ready = [each for each in decisions if each.action in ("cached", "restore")]
        fetched = [each.stage for each in ready if each.action == "restore"]
        if fetched:
            execute(session, ready, local=True, slots=1, command="posttrain pull")
        elif len(ready) == len(decisions):
            session.settle(decisions)
    click.echo(f"{records:,} new records from {ledgers} ledgers of others.")
    brought = f": {', '.join(fetched)}" if fetched else ""
    click.echo(f"{len(fetched)} of {len(decisions)} stages fetched{brought}.")
    if left := [each.stage for each in decisions if each not in ready]:
        click.echo(f"Not up to date here: {', '.join(left)}; see posttrain plan.")
