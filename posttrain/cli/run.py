"""`posttrain run`: bring a recipe up to date and show what came out."""

import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from posttrain.cli.options import (
    Documented,
    from_option,
    only_option,
    overrides_option,
    recipe_argument,
    slots_option,
)
from posttrain.stage.errors import UserError
from posttrain.stage.interrupts import end_now, hear, let_end

if TYPE_CHECKING:
    from posttrain.pipeline.execution.display import Display
    from posttrain.pipeline.execution.session import Session
    from posttrain.pipeline.plan import Decision

_SOON_SECONDS = 0.7


@click.command(cls=Documented)
@recipe_argument
@overrides_option
@from_option
@only_option
@click.option("--local", is_flag=True, help="Run without Prefect: no import, no server.")
@slots_option
@click.option("--watch", is_flag=True, help="Run again whenever recipe, code or inputs change.")
def run(
    recipe: Path,
    overrides: Sequence[str],
    start: str | None,
    only: str | None,
    watch: bool,
    **how: Any,
) -> None:
    """Run the stages of RECIPE that are not up to date.

    A stage is up to date when a run with the same code, parameters, inputs, packages and settings
    is in the ledger and its outputs are in place or in the cache. A killed run goes on from its
    last checkpoint: start it again. With --set the committed files stay as they are, and the
    try's own (dvc.yaml, report.html) lie in .posttrain/tries; its artifacts take the place of the
    last ones, as in any run. The section `notify` of a recipe says who is told of the end, and
    `cost` what a run may take.

    Examples:
      posttrain run                               the recipe of this folder
      posttrain run recipes/gsm8k                 another recipe
      posttrain run --set rl.optimization.learning_rate=2e-4   only what depends on it runs
      posttrain run --from rl                     rl and everything after it, again
      posttrain run --local                       without Prefect
      posttrain run --local --watch               again after every change, until Ctrl+C
      posttrain run --set run.resources.processes=2
                                                  training stages in two processes (FSDP2)
      posttrain run --set rl.resources.ray=auto   rollouts drawn and verified on a Ray cluster

    """
    if start and only:
        raise UserError("--from and --only exclude each other; give one of them")
    wanted = RunRequest(recipe, tuple(overrides), start, only, **how)
    if not watch:
        _run_once(wanted)
        return
    from posttrain.cli.watch import run_on_changes

    run_on_changes(wanted.recipe, wanted.overrides, lambda: _run_once(wanted))


@dataclass(frozen=True)
class RunRequest:
    """What the command line asks for."""

    recipe: Path
    overrides: Sequence[str]
    start: str | None
    only: str | None
    local: bool
    slots: int | None


def _run_once(wanted: RunRequest) -> None:
    from posttrain.operations.python.plans import decide_all
    from posttrain.pipeline.execution.compatibility import asking_people
    from posttrain.pipeline.execution.display import PlainDisplay
    from posttrain.pipeline.execution.session import open_session

    began = time.monotonic()
    # Until the first record of the run there is nothing to close: it may end on the spot.
    hear(end_now)
    with (
        open_session(wanted.recipe, wanted.overrides) as session,
        session.workspace.locked(_command_line()),
    ):
        session.tries = bool(wanted.overrides)
        decisions = decide_all(session, start=wanted.start, only=wanted.only)
        asking = asking_people(session.planner, decisions)
        idle = all(decision.action == "cached" for decision in decisions)
        if idle:
            session.settle(decisions)
            click.echo(
                f"Everything is up to date: {len(decisions)} stages, nothing to run.", err=True
            )
        else:
            lanes = wanted.slots or session.recipe.run.lanes()
            _import_soon("posttrain.cli.summary")
            execute(
                session,
                decisions,
                local=wanted.local,
                slots=lanes,
                command=_command_line(),
                # Bars that are drawn anew would go over what a person is asked, and types.
                shown=PlainDisplay() if asking else None,
                then=partial(_renew_page, session, alone=bool(wanted.only)),
            )
        from posttrain.cli.summary import show_summary

        # All is recorded: there is nothing to stop, and nothing to go on with.
        hear(let_end)
        show_summary(session, time.monotonic() - began, alone=bool(wanted.only))


def execute(
    session: "Session",
    decisions: "Sequence[Decision]",
    *,
    local: bool,
    slots: int,
    command: str,
    shown: "Display | None" = None,
    then: Callable[[], Path | None] = lambda: None,
) -> None:
    """Bring stages up to date, at most `slots` at once, and show how far they are.

    What is to be done `then` is done while the tracker still writes.
    """
    from posttrain.cli.notify import tell_of_run
    from posttrain.operations.bring_up import bring_up_to_date, runner_of
    from posttrain.pipeline.execution.failures import ServerFailed, StageFailed

    with nullcontext(shown) if shown else progress_display() as display:
        try:
            whole = len(decisions) == len(session.dag.stages)
            page = session.page if whole else None
            runner = runner_of(local=local, slots=slots, page=page)
            bring_up_to_date(
                session, decisions, runner, display, command, then=then, complain=_note
            )
            tell_of_run(session, "success")
        except StageFailed as failure:
            tell_of_run(session, "failure", str(failure))
            raise click.ClickException(
                f"{failure}\nOnce that is mended, run the same command again: finished stages are "
                "kept, and a stage with checkpoints goes on from the last one."
            ) from None
        except ServerFailed as failure:
            tell_of_run(session, "failure", str(failure))
            raise click.ClickException(str(failure)) from None


def _note(complaint: str) -> None:
    click.echo(f"note: {complaint}", err=True)


def _renew_page(session: "Session", *, alone: bool) -> Path:
    from posttrain.cli.summary import page_of, renew_report

    return renew_report(session, page_of(session, alone=alone))


def _import_soon(module: str) -> None:
    """Import what shows a run while its stages work, once the first of them has begun."""
    soon = threading.Timer(_SOON_SECONDS, importlib.import_module, [module])
    soon.daemon = True
    soon.start()


@contextmanager
def progress_display() -> Iterator["Display"]:
    """Live bars on a terminal, plain lines elsewhere; both on standard error."""
    from posttrain.pipeline.execution.display import LiveDisplay, PlainDisplay

    if sys.stderr.isatty():
        with LiveDisplay(Console(stderr=True)) as display:
            yield display
    else:
        yield PlainDisplay()


def _command_line() -> str:
    return " ".join(["posttrain", *sys.argv[1:]])
