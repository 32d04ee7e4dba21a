"""Bring the stages of a recipe up to date and tell the tracker of it."""

import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from posttrain.pipeline.execution.display import Display
from posttrain.pipeline.execution.executor import Executor
from posttrain.pipeline.execution.session import Session
from posttrain.pipeline.plan import Decision
from posttrain.provenance.ledger import Run
from posttrain.provenance.ledger.location import REPORT_FILE
from posttrain.stage.interrupts import Interrupted
from posttrain.views.tracking import open_tracker
from posttrain.views.tracking.base import CLOSE_SECONDS

# After a signal; what MLflow has not heard by then it learns from `posttrain mlflow rebuild`.
_HURRIED_SECONDS = 0.2


def bring_up_to_date(
    session: Session,
    decisions: Sequence[Decision],
    runner: Callable[[Executor, Sequence[str]], None],
    display: Display,
    command: str,
    *,
    then: Callable[[], Path | None] = lambda: None,
    complain: Callable[[str], object] = warnings.warn,
) -> Run:
    """Bring stages up to date and tell the tracker of it.

    Args:
        session: Of the recipe; its workspace is locked.
        decisions: What happens to the stages.
        runner: Carries out those that are not up to date.
        display: Is told of each stage.
        command: What the ledger notes as the way in which the run was asked for.
        then: What is done while the tracker still writes; the page that it returns is kept with
            the run's logs, and shown by the tracker.
        complain: Is told what the tracker could not write, unless the run is asked to end.

    Returns:
        The run.

    """
    tracker, patience = open_tracker(session.workspace.state), CLOSE_SECONDS
    try:
        tracker.prepare()
        made = session.run(
            decisions, runner=runner, tracker=tracker, display=display, command=command
        )
        if (page := then()) is not None:
            kept = session.workspace.run_dir(made.id) / REPORT_FILE
            if page != kept:
                shutil.copyfile(page, kept)
            tracker.attach(made.id, [kept])
        return made
    except Interrupted:
        patience = _HURRIED_SECONDS
        raise
    finally:
        complaint = tracker.close(seconds=patience)
        if complaint and patience == CLOSE_SECONDS:
            complain(complaint)


def runner_of(
    *, local: bool, slots: int, page: Path | None = None
) -> Callable[[Executor, Sequence[str]], None]:
    """Choose who carries out stages.

    Args:
        local: Threads of this process, in place of Prefect.
        slots: Stages at once.
        page: The report that is written afterwards; Prefect's pages refer to it.

    Returns:
        What `Session.run` takes.

    """
    if local:
        from posttrain.pipeline.execution.local import run_locally

        return lambda executor, names: run_locally(executor, names, slots=slots)
    from posttrain.pipeline.execution.prefect import run_with_prefect

    return lambda executor, names: run_with_prefect(executor, names, slots=slots, page=page)
