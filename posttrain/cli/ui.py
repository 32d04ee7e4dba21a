"""`posttrain ui`: the project in a browser."""

import click

from posttrain.cli.ledger import ledger_option, workspace_root
from posttrain.cli.options import Documented
from posttrain.provenance.ledger.location import ledger_location

_PORT = 8484


@click.command(cls=Documented)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_PORT,
    show_default=True,
    help="Port on this machine's loopback; 0 takes a free one.",
)
@ledger_option
def ui(port: int, ledger_at: str | None) -> None:
    """Show runs, rollouts, data, lineage, releases, schedules and claims in a browser.

    The page is served on this machine alone (127.0.0.1) and needs no network. It reads what is
    there and changes nothing, but for the reviews of rows that you write in it.

    Examples:
      posttrain ui                         of the project around this folder
      posttrain ui --port 0                on any free port
      posttrain ui --ledger other.db       another ledger

    """
    from posttrain.cli.page.app import serve_project
    from posttrain.cli.page.project import Project

    root = workspace_root(ledger_at)
    project = Project(root, ledger_at or ledger_location(root))
    project.ledger().close()
    serve_project(project, port, say=lambda line: click.echo(line, err=True))
