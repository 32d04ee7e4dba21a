"""`posttrain adopt`: take over what an older version recorded."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from posttrain.cli.options import Documented, overrides_option, plain_table, recipe_argument
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import duration

if TYPE_CHECKING:
    from posttrain.pipeline.adoption import Candidate
    from posttrain.pipeline.execution.session import Session

_ACTIONS = {
    "up to date": "[green]up to date[/]",
    "adopt": "[green]adopt[/]",
    "ask": "[yellow]differs[/]",
    "run": "[cyan]run[/]",
}
_SHOWN = 3


@click.command("adopt", cls=Documented)
@recipe_argument
@overrides_option
@click.option("--yes", is_flag=True, help="Do it; without, only a table is shown.")
@click.option(
    "--anyway",
    multiple=True,
    metavar="STAGE",
    help="Take this stage's result over although something differs; needs --reason. Repeatable.",
)
@click.option("--reason", default="", metavar="TEXT", help="Why what differs changes no byte.")
@click.option("-v", "--verbose", is_flag=True, help="Every difference.")
def adopt_(
    recipe: Path,
    overrides: Sequence[str],
    *,
    yes: bool,
    anyway: Sequence[str],
    reason: str,
    verbose: bool,
) -> None:
    """Take over results of an older posttrain whose keys were made by other rules.

    A result is taken over where code, parameters and inputs say the same under the old names. What
    differs is listed, and runs again unless --anyway names it. The ledger keeps the old record and
    says of the new one that it was adopted, from what and why.

    Examples:
      posttrain adopt                        what could be taken over; changes nothing
      posttrain adopt -v                     with every difference
      posttrain adopt --yes                  take over what is the same
      posttrain adopt --yes --anyway pretrain --reason "only the names of parameters changed"

    """
    from posttrain.pipeline.adoption import adopt, find_candidates
    from posttrain.pipeline.execution.session import open_session

    if anyway and not reason.strip():
        raise UserError("--anyway needs --reason: say why what differs changes no byte")
    with open_session(recipe, overrides) as session:
        found = find_candidates(session.planner, [session.require(name) for name in anyway])
        Console().print(_table(session, found, verbose=verbose))
        adopted = [each for each in found if each.action == "adopt"]
        if not yes:
            click.echo(_foot(found))
            return
        with session.workspace.locked("posttrain adopt"):
            done = adopt(
                session.ledger,
                session.recipe.name,
                found,
                command=" ".join(["posttrain adopt", *(f"--anyway {name}" for name in anyway)]),
                why=reason,
                folder=session.workspace.folder,
                actor=session.workspace.actor,
            )
        click.echo(f"{len(done)} of {len(found)} stages adopted: {_names(adopted) or 'none'}.")


def _table(session: "Session", found: "Sequence[Candidate]", *, verbose: bool) -> Table:
    lasting = session.ledger.history.durations([each.stage for each in found], session.recipe.name)
    table = plain_table("stage", "result", "last took", "why", right=("last took",))
    for each in found:
        lines = [each.reason]
        shown = each.differences if verbose else each.differences[:_SHOWN]
        if each.action == "ask" or verbose:
            lines += [f"  {difference.sentence}" for difference in shown]
            if more := len(each.differences) - len(shown):
                lines.append(f"  and {more} more: -v")
        seconds = duration(lasting[each.stage]) if each.stage in lasting else ""
        table.add_row(each.stage, _ACTIONS[each.action], seconds, escape("\n".join(lines)))
    return table


def _foot(found: "Sequence[Candidate]") -> str:
    adopted, asked = ([e for e in found if e.action == action] for action in ("adopt", "ask"))
    if not adopted and not asked:
        return "Nothing to adopt."
    says = [f"{len(adopted)} of {len(found)} stages can be adopted: posttrain adopt --yes"]
    if asked:
        says.append(
            f"{_names(asked)}: something differs, so it runs again. Where you know that it changes"
            f" no byte: posttrain adopt --yes --anyway {asked[0].stage} --reason '...'"
        )
    return "\n".join(says)


def _names(candidates: "Sequence[Candidate]") -> str:
    return ", ".join(each.stage for each in candidates)
