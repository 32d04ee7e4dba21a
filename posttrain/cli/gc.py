"""`posttrain gc`: free disk space without losing anything that is needed."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.markup import escape

from posttrain.cli.ledger import existing_ledger, ledger_option, workspace_root
from posttrain.cli.legends import say_legend
from posttrain.cli.options import DocumentedGroup, plain_table
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import bytesize

if TYPE_CHECKING:
    from posttrain.operations.maintenance.collect import CollectionPlan


@click.group(invoke_without_command=True, cls=DocumentedGroup)
@click.option("--dry-run", is_flag=True, help="Show the table and remove nothing.")
@click.option("--budget", metavar="BYTES", help="Remove only so much that this is left: 50GB.")
@click.option(
    "--keep-last",
    "last",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Runs of each recipe whose artifacts stay.",
)
@click.option(
    "--keep-best",
    "best",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Best stage runs of each --metric that stay.",
)
@click.option("--metric", "metrics", multiple=True, help="STAGE/METRIC or METRIC; repeatable.")
@click.option("--lowest", is_flag=True, help="The best value of a --metric is its lowest.")
@click.option("--requests", is_flag=True, help="Clear the answers that model servers gave, too.")
@click.option("--yes", is_flag=True, help="Do not ask before anything is removed.")
@click.option("-v", "--verbose", is_flag=True, help="List everything that goes, by last use.")
@ledger_option
@click.pass_context
def gc(
    context: click.Context,
    /,
    *,
    dry_run: bool,
    budget: str | None,
    requests: bool,
    yes: bool,
    verbose: bool,
    ledger_at: str | None,
    **keep: Any,
) -> None:
    """Remove what nothing needs: cached artifacts, checkpoints, rollouts, history.

    Never removed is what a release, a pin, a run that is under way, or the dvc.lock of any
    worktree, branch, tag or project on the same cache names; nor what no ledger here knows.

    Examples:
      posttrain gc --dry-run                       what would go, and why the rest stays
      posttrain gc --budget 50GB                   the longest unused first, until 50 GB are left
      posttrain gc --keep-last 10 --keep-best 3 --metric evaluate/rl/pass_at_1
      posttrain gc pin data/rl/policy              keep these bytes, whatever comes

    """
    if context.invoked_subcommand is not None:
        return
    from posttrain.operations.maintenance.claims import Keep
    from posttrain.operations.maintenance.collect import carry_out, make_plan
    from posttrain.operations.maintenance.policy import parse_bytes
    from posttrain.provenance.dvc import DvcStore

    asked = context.get_parameter_source("best") is not ParameterSource.DEFAULT
    if asked and not keep["metrics"]:
        raise UserError("--keep-best needs a --metric, such as evaluate/pass_at_1")
    root = workspace_root(ledger_at)
    limit = parse_bytes(budget) if budget is not None else None
    with existing_ledger(ledger_at) as ledger:
        cache = DvcStore(root, root).cache
        plan = make_plan(root, ledger, cache, Keep(**keep), budget=limit, requests=requests)
        if verbose:
            _list(plan)
        _show(plan, limit)
        if dry_run or not plan.decision.removed:
            click.echo("Nothing was removed.")
            return
        if not yes and sys.stdin.isatty():
            click.confirm(f"Remove {bytesize(plan.decision.freed)}?", abort=True)
        freed = carry_out(plan, _progress())
    click.echo(f"{bytesize(freed)} freed")


@gc.command()
@click.argument("node")
@ledger_option
def pin(node: str, ledger_at: str | None) -> None:
    """Keep NODE (a path, digest, STAGE@RUN or release) whatever the policy says."""
    from posttrain.operations.maintenance.pins import pin as put
    from posttrain.provenance.lineage.names import find_node

    root = workspace_root(ledger_at)
    with existing_ledger(ledger_at) as ledger:
        digests = put(ledger, find_node(ledger, node, root=root, cwd=Path.cwd()), node)
    click.echo(f"pinned: {', '.join(digest[:12] for digest in digests)}")


@gc.command()
@click.argument("node")
@ledger_option
def unpin(node: str, ledger_at: str | None) -> None:
    """Let NODE go by the policy again."""
    from posttrain.operations.maintenance.pins import unpin as take
    from posttrain.provenance.lineage.names import find_node

    root = workspace_root(ledger_at)
    with existing_ledger(ledger_at) as ledger:
        digests = take(ledger, find_node(ledger, node, root=root, cwd=Path.cwd()))
    click.echo(f"not pinned any more: {', '.join(digest[:12] for digest in digests)}")


@gc.command()
@ledger_option
def pins(ledger_at: str | None) -> None:
    """List what is pinned."""
    from posttrain.operations.maintenance.pins import pinned

    with existing_ledger(ledger_at) as ledger:
        found = pinned(ledger)
    for digest, name in sorted(found.items(), key=lambda item: item[1]):
        click.echo(f"{digest[:12]}  {name}")
    if not found:
        click.echo("Nothing is pinned. posttrain gc pin NODE pins.")


def _show(plan: "CollectionPlan", budget: int | None) -> None:
    from posttrain.operations.maintenance.policy import table

    shown = plain_table("", "why", "what", "number", "size", right=("number", "size"))
    for line in table(plan.decision):
        state = "[red]goes[/]" if line.goes else "[green]stays[/]"
        shown.add_row(state, escape(line.reason), line.kind, f"{line.count:,}", bytesize(line.size))
    Console().print(shown)
    say_legend("collect")
    left, freed = plan.decision.left, plan.decision.freed
    click.echo(f"{bytesize(freed)} can go, {bytesize(left)} stay.")
    if budget is not None and left > budget:
        click.echo(
            f"The budget of {bytesize(budget)} cannot be met: all that stays is needed. "
            "Keep fewer runs (--keep-last), unpin, or raise it."
        )


def _list(plan: "CollectionPlan") -> None:
    """What goes, the longest unused first, as it is removed."""
    shown = plain_table("last used", "what", "name", "size", right=("size",))
    for node in plan.decision.removed:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(node.used)) if node.used else ""
        shown.add_row(day, node.kind, escape(node.name), bytesize(sum(node.parts.values())))
    Console().print(shown)
    click.echo()


def _progress() -> Callable[[int], None]:
    """Counts on the terminal what was removed; silent where there is no terminal."""
    done = 0

    def more(count: int) -> None:
        nonlocal done
        done += count
        if sys.stderr.isatty():
            click.echo(f"\r{done:,} objects removed", err=True, nl=False)

    return more
