"""`posttrain plan`: what would run, why, and how long it took last time."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from posttrain.cli.legends import say_legend
from posttrain.cli.options import Documented, overrides_option, plain_table, recipe_argument
from posttrain.cli.plan_memory import MemoryQuestion, memory_options, print_memory
from posttrain.stage.errors import UserError
from posttrain.stage.formatting import counted

if TYPE_CHECKING:
    from posttrain.operations.python.plans import RunPlan
    from posttrain.pipeline.execution.session import Session
    from posttrain.provenance.code import CodeClosure
    from posttrain.stage.declared import Declared

_COLORS = {
    "cached": "green",
    "restore": "green",
    "run": "cyan",
    "pending": "yellow",
    "missing": "red",
}


@click.command(cls=Documented)
@recipe_argument
@overrides_option
@click.option("--from", "start", metavar="STAGE", help="As in `posttrain run --from`.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Every reason, and where code analysis fell back."
)
@memory_options
def plan(
    recipe: Path,
    overrides: Sequence[str],
    start: str | None,
    verbose: bool,
    memory: bool,
    **asked: Any,
) -> None:
    """Show what `posttrain run` would do with RECIPE, without doing it.

    With --memory it shows instead what each stage that trains or samples takes at its peak: of
    weights, gradients, optimizer, activations, logits, keys and values. Only the model's
    config.json is read. What cannot fit is refused, with the three settings that would help most.

    Examples:
      posttrain plan                              the recipe of this folder
      posttrain plan --set rl.optimization.learning_rate=2e-4  what that change would run
      posttrain plan --from rl -v                 every reason
      posttrain plan --set run.resources.processes=2
                                                  training stages in two processes
      posttrain plan --memory                     does it fit into this machine?
      posttrain plan --memory --gpu 80GB --gpus 8 --set run.resources.processes=8
                                                  into eight GPUs, which share each model?
      posttrain plan --memory --gpu 24GB --set 'sft.learner.lora={rank: 16}'
                                                  with adapters, into a smaller one?

    """
    from posttrain.pipeline.execution.session import open_session

    question = MemoryQuestion(**asked)
    if not memory and question != MemoryQuestion():
        raise UserError(
            "--gpu, --gpus, --prompt-tokens, --model-config and --json say how memory is counted;"
            " add --memory, or leave them out"
        )
    if memory:
        with open_session(recipe, overrides) as session:
            print_memory(session, question)
        return
    from posttrain.operations.python.plans import (
        decide_all,
        described,
        refuse_what_stands_in_the_way,
    )

    with open_session(recipe, overrides) as session:
        decisions = decide_all(session, start=start)
        planned = described(session, decisions)
        Console().print(_table(planned, verbose=verbose))
        say_legend("action")
        for line in planned.notes:
            click.echo(f"note: {line}")
        if verbose:
            _print_details(session, planned)
        for line in planned.closing:
            click.echo(line)
        refuse_what_stands_in_the_way(session, decisions)


def _print_details(session: "Session", planned: "RunPlan") -> None:
    """What a profile set, and what keys do not see of a stage."""
    from posttrain.pipeline.profile_notes import set_by_profile

    for line in set_by_profile(session.recipe, session.dag):
        click.echo(line)
    for each in planned.stages:
        closure = session.planner.keys.closure(each.stage)
        for line in _unseen(closure, session.dag.stages[each.stage].declared):
            click.echo(f"{each.stage}: {line}")


def _unseen(closure: "CodeClosure", declared: "Declared") -> Iterator[str]:
    """Where code analysis took more than it saw, and what it saw that is in no key."""
    from posttrain.provenance.code import COMPUTED, FRAMEWORK

    whole = [each for each in closure.opaque if each.partition(".")[0] == FRAMEWORK]
    if whole:
        yield f"{counted(len(whole), 'module')} of {FRAMEWORK}'s own count in the key as a whole"
    for module, reason in closure.opaque.items():
        if module not in whole:
            yield f"all of {module} counts ({reason})"
    known = {*declared.environment, *declared.secrets}
    for name, modules in closure.environment.items():
        # What the framework reads decides nothing, or is in the key by value.
        own = sorted(each for each in modules if each.partition(".")[0] != FRAMEWORK)
        if own and name not in known:
            read = "environment variables by names that it makes up" if name == COMPUTED else name
            yield f"{', '.join(own)} reads {read}, which `environment:` does not declare"


def _table(planned: "RunPlan", *, verbose: bool) -> Table:
    table = plain_table("stage", "action", "last took", "why", right=("last took",))
    rows = planned.rows(verbose=verbose, hint=": -v")
    for each, (stage, action, seconds, why) in zip(planned.stages, rows, strict=True):
        color = _COLORS[each.action]
        table.add_row(stage, f"[{color}]{action}[/]", seconds, escape(why))
    return table
