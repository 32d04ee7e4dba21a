"""`posttrain cost`: what stages, a run or a release took, in time, energy, tokens and money."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli.legends import say_legend
from posttrain.cli.options import Documented
from posttrain.stage.formatting import counted, duration, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from posttrain.operations.costs import StageCost
    from posttrain.pipeline.cost_settings import CostSettings
    from posttrain.provenance.ledger.usage import Usage

_HOUR, _KWH = 3600.0, 3.6e6


@click.command(cls=Documented)
@click.argument("target", metavar="[RUN|RELEASE|REF]", default="latest")
@click.option(
    "--recipe", default=".", type=click.Path(path_type=Path), help="Folder of the recipe."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cost(target: str, recipe: Path, as_json: bool) -> None:
    """Show what each stage took: clock, CPU and GPU hours, energy, tokens drawn, money.

    The target is a run (latest, latest~1, an id), a release, a branch or `.`, the workspace. Of a
    run the sum is what it took itself, failed attempts included; below it stands what all took
    that its outputs were made by, whenever that was, which is the cost of a release.

    Money is computed at the rates that the recipe states, and a budget stops a run:
      cost:
        currency: EUR
        cpu_hour: 0.04
        gpu_hour: 2.5
        budget: {gpu_hours: 8, money: 25}

    Examples:
      posttrain cost                       the last run
      posttrain cost math-policy@v0.1.0    all that a release was made by
      posttrain cost latest --json

    """
    from posttrain.operations.costs import costs_of_stages
    from posttrain.pipeline.execution.session import open_session
    from posttrain.provenance.ledger.usage import total_usage
    from posttrain.provenance.lineage.artifacts import Finder
    from posttrain.provenance.lineage.names import find_run
    from posttrain.publishing.changes import is_run, state_named

    with open_session(recipe) as session:
        root, ledger = session.workspace.root, session.ledger
        settings = session.recipe.cost_settings()
        if is_run(target):
            run = find_run(ledger, target)
            records, told = ledger.stage_runs(run.id), f"run {run.id}"
        else:
            state = state_named(ledger, session.recipe.directory, root, target)
            records, told = list(state.stages.values()), state.told
        finder = Finder(root)
        found = costs_of_stages(ledger, records, finder)
        finder.remember()
    own = total_usage(each.usage for each in found if each.usage)
    behind = total_usage(each.behind for each in found if each.behind)
    if as_json:
        click.echo(json.dumps(_as_object(found, own, behind, settings), indent=2))
        return
    click.echo(told)
    _print(found, own, behind, settings)


def _print(
    found: "Sequence[StageCost]", own: "Usage", behind: "Usage", settings: "CostSettings"
) -> None:
    from rich.console import Console

    from posttrain.cli.options import plain_table

    priced = settings.money(own) is not None
    figures = ["clock", "CPU hours", "GPU hours", "kWh", "tokens drawn"]
    figures += [settings.currency] * priced
    table = plain_table("stage", "", *figures, right=figures, unbroken=("stage",))
    for each in found:
        said = each.status if each.attempts < 2 else f"{each.status}, {each.attempts} attempts"
        row = _cells(each.usage or each.behind, settings, each.tokens)
        table.add_row(each.stage, said, *row[: len(figures)])
    table.add_row()
    drawn = sum(each.tokens or 0 for each in found)
    for name, usage, tokens in (
        ("this run", own, drawn_here(found)),
        ("all behind it", behind, drawn),
    ):
        row = _cells(usage if usage.seconds else None, settings, tokens)
        table.add_row(name, "", *row[: len(figures)])
    Console().print(table)
    if uncounted := sum(each.behind is None for each in found):
        click.echo(
            f"note: nobody counted what {counted(uncounted, 'stage')} took: made before posttrain"
            " did, or elsewhere"
        )
    if not priced:
        click.echo("note: the recipe states no rates; see posttrain cost --help")
    say_legend("cost")


def drawn_here(found: "Sequence[StageCost]") -> int:
    """Count the tokens that policies drew in a run itself.

    Args:
        found: Its stages.

    Returns:
        Those of stages that this run executed to their end: what a failed attempt drew is nowhere.

    """
    return sum(each.tokens or 0 for each in found if each.attempts and each.status == "succeeded")


def _cells(usage: "Usage | None", settings: "CostSettings", tokens: int | None) -> "Sequence[str]":
    drawn = "" if tokens is None else f"{tokens:,}"
    if usage is None:
        return "", "", "", "", drawn, ""
    money = settings.money(usage)
    return (
        duration(usage.seconds),
        "" if usage.cpu_seconds is None else number(usage.cpu_seconds / _HOUR),
        number(usage.gpu_seconds / _HOUR),
        "" if usage.joules is None else number(usage.joules / _KWH),
        drawn,
        "" if money is None else f"{money:.3g}",
    )


def told_of_cost(usage: "Usage", settings: "CostSettings", tokens: int) -> str:
    """Say in a line what something took.

    Args:
        usage: Of the executions.
        settings: The recipe's rates.
        tokens: Drawn by policies; 0 leaves them out.

    Returns:
        Such as `0.42 CPU hours, 1.2 GPU hours, 3,400,000 tokens drawn, 3.1 USD`.

    """
    money = settings.money(usage)
    parts = [
        "" if usage.cpu_seconds is None else f"{number(usage.cpu_seconds / _HOUR)} CPU hours",
        f"{number(usage.gpu_seconds / _HOUR)} GPU hours" if usage.gpu_seconds else "",
        "" if usage.joules is None else f"{number(usage.joules / _KWH)} kWh",
        f"{tokens:,} tokens drawn" if tokens else "",
        "" if money is None else f"{money:.3g} {settings.currency}",
    ]
    return ", ".join(filter(None, parts))


def _as_object(
    found: "Sequence[StageCost]", own: "Usage", behind: "Usage", settings: "CostSettings"
) -> dict[str, Any]:
    def priced(usage: "Usage | None") -> dict[str, Any] | None:
        return None if usage is None else {**asdict(usage), "money": settings.money(usage)}

    stages = [
        {**asdict(each), "usage": priced(each.usage), "behind": priced(each.behind)}
        for each in found
    ]
    whole = {
        "this_run": priced(own),
        "behind": priced(behind),
        "tokens_this_run": drawn_here(found),
        "tokens_behind": sum(each.tokens or 0 for each in found),
    }
    return {"currency": settings.currency, "stages": stages, **whole}
