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
from posttrain.stage.formatting import counted, duration

if TYPE_CHECKING:
    from posttrain.pipeline.execution.session import Session
    from posttrain.pipeline.plan import Decision
    from posttrain.provenance.code import CodeClosure
    from posttrain.stage.declared import Declared

_ACTIONS = {
    "cached": "[green]up to date[/]",
    "restore": "[green]restore[/]",
    "run": "[cyan]run[/]",
    "pending": "[yellow]maybe[/]",
    "missing": "[red]cannot tell[/]",
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
    from posttrain.cli.plan_notes import notes_on
    from posttrain.pipeline.execution.compatibility import refuse_incompatible
    from posttrain.provenance.key import is_of_other_rules

    with open_session(recipe, overrides) as session:
        if start:
            session.force(start)
        decisions = session.planner.plan()
        refuse_incompatible(session.planner, decisions)
        check_release(session)
        running = [d for d in decisions if d.action in ("run", "pending")]
        for each in running:
            session.dag.stages[each.stage].config.check_names(each.stage)
        Console().print(_table(decisions, verbose=verbose))
        say_legend("action")
        for line in notes_on(session, decisions):
            click.echo(f"note: {line}")
        if verbose:
            _print_details(session, decisions)
        for name, stage in session.dag.stages.items():
            if told := stage.resources.told():
                click.echo(f"{name} runs on {told}")
        click.echo(_total(running, len(decisions)))
        if any(each.reasons[:1] and is_of_other_rules(each.reasons[0]) for each in running):
            click.echo(
                "An older posttrain recorded some of them, whose keys had other rules: what is the"
                " same need not run again, see posttrain adopt."
            )
        session.refuse_missing(decisions)
        session.refuse_places(makes=bool(running))


def _print_details(session: "Session", decisions: "Sequence[Decision]") -> None:
    """What a profile set, and what keys do not see of a stage."""
    from posttrain.pipeline.profile_notes import set_by_profile

    for line in set_by_profile(session.recipe, session.dag):
        click.echo(line)
    for decision in decisions:
        closure = session.planner.keys.closure(decision.stage)
        for line in _unseen(closure, session.dag.stages[decision.stage].declared):
            click.echo(f"{decision.stage}: {line}")


def check_release(session: "Session") -> None:
    """Say what no release would pass before the hours that it takes to get there."""
    if session.recipe.release:
        from posttrain.publishing.release.config import ReleaseConfig

        release = ReleaseConfig.parse(session.recipe.release, where="release")
        release.refuse_outdated()
        release.refuse_unknown(session.dag)


def check_beside(session: "Session") -> None:
    """Refuse what the sections `cost` and `notify` may not say before anything runs."""
    from posttrain.pipeline.notices import notice_settings

    session.recipe.cost_settings()
    notice_settings(session.recipe.notify)


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


def _total(running: "Sequence[Decision]", num_stages: int) -> str:
    known = [d.seconds for d in running if d.seconds is not None]
    text = f"{len(running)} of {num_stages} stages to run"
    if not known:
        return f"{text}."
    which = "they" if len(known) == len(running) else f"{len(known)} of them"
    return f"{text}; last time {which} took {duration(sum(known))}."


def _table(decisions: "Sequence[Decision]", *, verbose: bool) -> Table:
    table = plain_table("stage", "action", "last took", "why", right=("last took",))
    for decision in decisions:
        reasons = decision.reasons if verbose else decision.reasons[:1]
        more = len(decision.reasons) - len(reasons)
        why = "\n".join(reasons) + (f" (and {more} more: -v)" if more else "")
        seconds = "" if decision.seconds is None else duration(decision.seconds)
        table.add_row(decision.stage, _ACTIONS[decision.action], seconds, escape(why))
    return table
