"""`posttrain release rebuild | serve`: make a release again, or let it answer."""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from posttrain.cli.ledger import workspace_root
from posttrain.errors import UserError


@click.command()
@click.argument("target", metavar="TAG|FOLDER|ARCHIVE")
@click.option(
    "--into",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="An empty folder, or a new one.",
)
@click.option("--key", type=click.Path(path_type=Path, dir_okay=False), help="Public key.")
def rebuild(target: str, into: Path, key: Path | None) -> None:
    """Run the DAG again from the release alone, and compare stage by stage; exits with 1 if not.

    At L0 and L1 every output must have the same digest; at L2 and L3 every metric of the
    evaluation must lie in the interval that the released one allows. It runs in this environment,
    and says how that differs from the released one. The code in the release is executed: rebuild
    only what you would run.
    """
    from posttrain.release import keys
    from posttrain.release.contents import open_contents
    from posttrain.release.fetch import located
    from posttrain.release.rebuild import rebuild as again
    from posttrain.release.verify import read_claims, verify_path

    path = located(target)[0][0]
    public = keys.load_public(key or keys.public_path())
    if findings := verify_path(path, public):
        raise UserError(f"{path} does not verify: {findings[0]}; nothing was run")
    contents = open_contents(path)
    claims, _ = read_claims(contents, public)
    assert claims is not None
    done = again(contents, claims, into)
    table = Table(box=None, pad_edge=False)
    for heading in ("stage", "compared", "released", "rebuilt", ""):
        table.add_column(heading)
    for each in done.comparisons:
        words = "[green]equal[/]" if each.agrees else "[red]differs[/]"
        values = [_short(value) for value in (each.released, each.rebuilt)]
        table.add_row(each.stage, each.what, *values, words)
    Console().print(table)
    for difference in done.environment:
        click.echo(f"environment: {difference}", err=True)
    if not done.agrees:
        click.echo(f"The rebuild is not the release at level {done.level}.", err=True)
        sys.exit(1)
    click.echo(f"Rebuilt at level {done.level}: {len(done.comparisons)} comparisons agree.")


def _short(value: str) -> str:
    """Digests are told apart by their beginning."""
    return value[:12] if len(value) == 64 else value


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
    from posttrain.release import serve as serving
    from posttrain.release.registered import find_release, release_folder

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
