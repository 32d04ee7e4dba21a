"""`posttrain release verify | rebuild`: is a release what it says, and does it come out again?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli.legends import say_legend
from posttrain.cli.options import Documented
from posttrain.cli.release_keys import Trust, trust_options
from posttrain.cli.tables import colored, print_table
from posttrain.publishing.release.names import LEVELS
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import shortened

if TYPE_CHECKING:
    from rich.text import Text

    from posttrain.publishing.release.rebuild import RebuildComparison


@click.command(cls=Documented)
@click.argument("target", metavar="TAG|FOLDER|ARCHIVE")
@trust_options
@click.option("--expect", metavar="NAME@VERSION", help="It must be this release and no other.")
@click.option("--packages", is_flag=True, help="Compare the installed packages, file by file, too.")
def verify(target: str, expect: str | None, packages: bool, **signed_by: Any) -> None:
    """Check every byte, claim, link and signature with a public key; exits with 1 on a finding.

    A tag is looked up in git; its archive comes from the project, the DVC cache or a DVC remote.
    With --packages what is installed here is compared with the release's lock besides, and
    every file of it is hashed: some ten seconds.
    """
    from posttrain.publishing.release.contents import open_contents
    from posttrain.publishing.release.environment import package_findings
    from posttrain.publishing.release.names import parse_tag
    from posttrain.publishing.release.registered import located

    findings, other = list[str](), list[str]()
    for path, tag, pointed in located(target):
        wanted = parse_tag(expect) if expect else tag
        findings += [*pointed, *Trust(**signed_by).verify(path, expect=wanted)]
        if not findings:
            click.echo(f"{path}: every byte, claim, link and signature holds")
    if packages and not findings:
        other = package_findings(open_contents(path).evidence("environment"))
        findings += other
        click.echo(f"packages: {'other ones' if other else 'all are the locked ones'}")
    for finding in findings:
        word = "differs" if finding in other else "altered"
        click.echo(f"{click.style(word, fg='red')}  {finding}", err=True)
    if findings:
        sys.exit(1)


@click.command(cls=Documented)
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
@click.option(
    "--give",
    "given",
    multiple=True,
    metavar="NAME",
    help="A variable, such as HF_TOKEN, that the released code is given; no secret is otherwise.",
)
def rebuild(
    target: str,
    into: Path,
    level: str | None,
    num_seeds: int,
    within: float,
    given: tuple[str, ...],
    **signed_by: Any,
) -> None:
    """Run the DAG again from the release alone, and compare stage by stage; exits with 1 if not.

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
    from posttrain.publishing.release.claims import read_claims
    from posttrain.publishing.release.contents import open_contents
    from posttrain.publishing.release.rebuild import Wish
    from posttrain.publishing.release.rebuild import rebuild as again
    from posttrain.publishing.release.registered import located

    path, trust = located(target)[0][0], Trust(**signed_by)
    if findings := trust.verify(path):
        raise UserError(f"{path} does not verify: {findings[0]}; nothing was run")
    contents = open_contents(path)
    claims, _ = read_claims(contents, trust.signed_by(path)[0])
    assert claims is not None
    done = again(contents, claims, into, Wish(level, num_seeds, within, given))
    print_table(("stage", "compared", "by", "released", "rebuilt", ""), map(_row, done.comparisons))
    say_legend("compared")
    for difference in done.environment:
        click.echo(f"environment: {difference}", err=True)
    click.echo(f"{done.level}: {done.rule}.")
    if not done.agrees:
        is_not = "is not" if done.agrees is False else "is not comparable with"
        click.echo(f"The rebuild {is_not} the release at level {done.level}.", err=True)
        sys.exit(1)
    binding = sum(each.binding for each in done.comparisons)
    click.echo(f"Rebuilt at level {done.level}: {binding} comparisons agree.")


def _row(each: "RebuildComparison") -> "tuple[str | Text, ...]":
    """One comparison; what does not count at the level is shown dimmed."""
    agrees = "equal" if each.released == each.rebuilt else "agrees"
    words = {
        True: colored(agrees, "green"),
        False: colored("differs", "red"),
        None: colored("not comparable", "yellow"),
    }[each.agrees]
    if not each.binding:
        words = colored(f"{words}, not asked", "dim")
    values = shortened(each.released), shortened(each.rebuilt)
    return each.stage, each.what, each.how, *values, words
