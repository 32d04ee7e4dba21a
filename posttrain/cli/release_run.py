"""`posttrain release rebuild | serve`: make a release again, or let it answer."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from posttrain.cli.ledger import workspace_root
from posttrain.cli.release_move import settle
from posttrain.cli.release_trust import Trust, trust_options
from posttrain.publishing.release.names import LEVELS
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from posttrain.publishing.release.levels import RebuildComparison


@click.command()
@click.argument("target", metavar="TAG|FOLDER|ARCHIVE")
@click.option(
    "--into",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="An empty folder, or a new one.",
)
@trust_options
@click.option(
    "--level", type=click.Choice(LEVELS), help="What to compare by [default: what it declares]."
)
@click.option(
    "--seeds",
    "num_seeds",
    default=3,
    show_default=True,
    type=click.IntRange(min=1),
    help="L3: seeds that the DAG is run with, from the released one on.",
)
@click.option(
    "--within",
    default=0.1,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="L3: how closely the seeds must tell the mean for a verdict.",
)
def rebuild(
    target: str, into: Path, level: str | None, num_seeds: int, within: float, trust: Trust
) -> None:
    r"""Run the DAG again from the release alone, and compare stage by stage; exits with 1 if not.

    \b
    L0  every output of every stage has the same digest
    L1  the same, on the model of GPU that it was released on (another one is refused)
    L2  every learner, replayed from the stored rollouts, ends at the same weights;
        and pass@1 of the DAG, run once, agrees within the intervals
    L3  the DAG is run with several seeds: the released pass@1 lies in the 95%
        prediction interval of theirs (with --seeds 1: the two intervals overlap)

    It runs in this environment, and says how that differs from the released one. What was compared
    is also written into the folder, as rebuild.json. The code in the release is executed: rebuild
    only what you would run.
    """
    from posttrain.publishing.release.contents import open_contents
    from posttrain.publishing.release.fetch import located
    from posttrain.publishing.release.rebuild import Wish
    from posttrain.publishing.release.rebuild import rebuild as again
    from posttrain.publishing.release.verify import read_claims

    path = located(target)[0][0]
    if findings := trust.verify(path):
        raise UserError(f"{path} does not verify: {findings[0]}; nothing was run")
    contents = open_contents(path)
    claims, _ = read_claims(contents, trust.signed_by(path)[0])
    assert claims is not None
    done = again(contents, claims, into, Wish(level, num_seeds, within))
    Console().print(_compared(done.comparisons))
    for difference in done.environment:
        click.echo(f"environment: {difference}", err=True)
    click.echo(f"{done.level}: {done.rule}.")
    if not done.agrees:
        click.echo(f"The rebuild is not the release at level {done.level}.", err=True)
        sys.exit(1)
    binding = sum(each.binding for each in done.comparisons)
    click.echo(f"Rebuilt at level {done.level}: {binding} comparisons agree.")


def _compared(comparisons: "Iterable[RebuildComparison]") -> Table:
    """Stage by stage; what does not count at the level is shown dimmed."""
    table = Table(box=None, pad_edge=False)
    for heading in ("stage", "compared", "by", "released", "rebuilt", ""):
        table.add_column(heading)
    for each in comparisons:
        word = "equal" if each.released == each.rebuilt else "agrees"
        words = f"[green]{word}[/]" if each.agrees else "[red]differs[/]"
        if not each.binding:
            words = f"[dim]{word if each.agrees else 'differs'}, not asked[/]"
        values = [shortened(value) for value in (each.released, each.rebuilt)]
        table.add_row(each.stage, each.what, each.how, *values, words)
    return table


@click.command()
@click.argument("target", metavar="NAME[@VERSION|#STAGE]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="Port to listen on.",
)
@click.option("--print", "only_print", is_flag=True, help="Print the command and start nothing.")
def serve(target: str, host: str, port: int, only_print: bool) -> None:
    """Print the vLLM command of a release; where vLLM is installed, start and check it."""
    from posttrain.publishing.release import serve as serving
    from posttrain.publishing.release.registered import find_release, release_folder

    settle()
    root = workspace_root(None)
    tag = find_release(root, target)
    folder = release_folder(root, tag)
    command = serving.serve_command(folder, str(tag), host=host, port=port)
    click.echo(serving.shell_line(command))
    if only_print:
        return
    if not serving.has_vllm():
        click.echo("vLLM is not installed here; run the command above where it is.", err=True)
        return
    process = serving.serve(folder, command, host=host, port=port)
    click.echo(f"{tag} answers at http://{host}:{port}/v1, as it did when it was released.")
    try:
        sys.exit(process.wait())
    finally:
        process.terminate()
