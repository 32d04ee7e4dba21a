"""`posttrain verify`: run again what was run, and say at which level it holds."""

import json
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import click

from posttrain.cli.ledger import existing_ledger, ledger_option, workspace_root
from posttrain.cli.legends import say_legend
from posttrain.cli.options import Documented
from posttrain.cli.tables import colored, print_table
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import shortened

if TYPE_CHECKING:
    from posttrain.publishing.reproduction.verification import LevelCheck


@click.command(cls=Documented)
@click.argument("name", metavar="RUN|STAGE@RUN")
@click.option(
    "--level",
    type=click.Choice(["L0", "L2", "L3"]),
    required=True,
    help="L0: the same bytes. L2: the same weights from stored rollouts. L3: figures over seeds.",
)
@click.option(
    "--seeds",
    "num_seeds",
    type=click.IntRange(min=2),
    help="L3: further seeds to run with [default: 3].",
)
@click.option("--metric", help="L3: the figure to compare [default: pass@1 of the last policy].")
@click.option(
    "--within",
    type=click.FloatRange(min=0, min_open=True),
    help="L3: how closely the seeds must tell the mean for a verdict [default: 0.05].",
)
@click.option(
    "-o",
    "output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="What to print.",
)
@ledger_option
def verify(
    name: str,
    level: str,
    num_seeds: int | None,
    metric: str | None,
    within: float | None,
    output: str,
    ledger_at: str | None,
) -> None:
    """Run a run again, away from the workspace, and say whether it holds at a level.

    L0 runs every stage in a temporary project on exactly the inputs that it had, with the code of
    the working tree, which must be that of the run, and compares every output's digest. L2
    retrains the learners from their stored rollouts. L3 runs with further seeds: the recorded
    figure must lie in the 95% prediction interval (Student's t) of theirs, and their mean must be
    known to within --within. What was found is kept in the ledger, where release gates ask for it.

    What was made with other kernels, on another processor, is not comparable at L0 where its bytes
    differ: it neither holds nor fails, and no gate hears of it.

    Exits with 0 if it holds, and with 1 if it does not or there is no verdict.

    Examples:
      posttrain verify latest --level L0              every stage again: the same bytes?
      posttrain verify sft@latest --level L0          one stage, on the inputs that it had
      posttrain verify latest --level L2              the learners from their stored rollouts
      posttrain verify latest --level L3 --seeds 5    other seeds: a figure like the recorded one?
      posttrain verify latest --level L3 --metric evaluate/sft/pass_at_1 --within 0.02

    """
    from posttrain.cli.run import progress_display
    from posttrain.publishing.reproduction.seeds import SeedQuestion
    from posttrain.publishing.reproduction.verification import (
        verify_bytes,
        verify_replay,
        verify_seeds,
    )

    if level != "L3" and (num_seeds or metric or within):
        raise UserError("--seeds, --metric and --within belong to --level L3")
    root = workspace_root(ledger_at)
    # A project brings tasks of its own.
    sys.path.insert(0, str(root))
    with existing_ledger(ledger_at) as ledger:
        with ledger.store.transaction():
            pass  # refused where the verdict could not be kept, before all is run again
        if level == "L0":
            check = verify_bytes(ledger, name, root)
        elif level == "L2":
            with progress_display() as display:
                check = verify_replay(ledger, name, root, display)
        else:
            asked = SeedQuestion(metric, num_seeds or 3, within or 0.05)
            check = verify_seeds(ledger, name, root, asked, partial(click.echo, err=True))
        ledger.annotations.verify(*check.verifications())
    _show(check, output)
    if not check.holds:
        sys.exit(1)


def _show(check: "LevelCheck", output: str) -> None:
    if output == "json":
        findings = [asdict(each) for each in check.findings]
        facts = {"name": check.name, "level": check.level, "holds": check.holds}
        said = {"rule": check.rule, "advice": check.advice, "details": dict(check.details)}
        click.echo(json.dumps(facts | said | {"findings": findings}, indent=1))
        return
    rows = []
    for each in check.findings:
        words = {
            True: colored("agrees", "green"),
            False: colored("differs", "red", f" {each.note}"),
            None: colored("not comparable", "yellow", f" {each.note}"),
        }[each.agrees]
        values = shortened(each.recorded), shortened(each.again)
        rows.append((each.stage, each.what, *values, words))
    print_table(("stage", "compared", "recorded", "again", ""), rows)
    say_legend("compared")
    click.echo(f"Rule: {check.rule}.")
    if check.advice:
        click.echo(check.advice)
    holds = {True: "holds", False: "does not hold", None: "neither holds nor fails"}[check.holds]
    click.echo(f"{check.name} {holds} at level {check.level}.")
