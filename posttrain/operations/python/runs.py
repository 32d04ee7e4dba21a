"""`posttrain.run`: bring a recipe up to date; what the command line does, too."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.operations.bring_up import bring_up_to_date, runner_of
from posttrain.operations.python.plans import decide_all
from posttrain.operations.python.project import AnyPath, Overrides, override_words
from posttrain.operations.python.shown import Displayed, Grid
from posttrain.pipeline.execution.compatibility import asking_people
from posttrain.pipeline.execution.display import Display, PlainDisplay
from posttrain.pipeline.execution.session import Session, open_session
from posttrain.provenance.ledger.records import StageStatus
from posttrain.stage.errors import UserError
from posttrain.stage.interrupts import SENTENCE, Interrupted

if TYPE_CHECKING:
    from rich.table import Table

    from posttrain.views.report import StageFacts


@dataclass(frozen=True)
class FinishedStage:
    """A stage whose outputs are in place.

    Attributes:
        stage: Its name.
        status: `succeeded`: it was executed. `cached`, `restored`: it did not have to be.
        seconds: How long its last execution took.
        outputs: Where each artifact lies, by the name of the output.
        metrics: What it measured, by the name that its task gives.

    """

    stage: str
    status: StageStatus
    seconds: float
    outputs: Mapping[str, Path]
    metrics: Mapping[str, float]


@dataclass(frozen=True, repr=False)
class RunResult(Displayed):
    """What a run came to.

    Attributes:
        recipe: Name of the recipe.
        run: Id of the run in the ledger; None where everything was up to date.
        stages: Its stages in the order of the flow.
        seconds: How long all of it took.
        summary: The table that `posttrain run` ends with.

    """

    recipe: str
    run: str | None
    stages: tuple[FinishedStage, ...]
    seconds: float
    summary: Grid

    @property
    def metrics(self) -> dict[str, float]:
        """What all stages measured, as `stage/metric`."""
        return {
            name if name.startswith(f"{each.stage}/") else f"{each.stage}/{name}": value
            for each in self.stages
            for name, value in each.metrics.items()
        }

    def grid(self) -> Grid:
        """See `Displayed`."""
        return self.summary


def run(
    recipe: AnyPath = ".",
    overrides: Overrides = (),
    *,
    start: str | None = None,
    only: str | None = None,
    local: bool = True,
    slots: int | None = None,
    quiet: bool = False,
) -> RunResult:
    """Run the stages of a recipe that are not up to date.

    A run that was stopped, or whose stage failed, goes on from its last checkpoint when it is
    called again. With overrides the committed files stay as they are.

    Args:
        recipe: A recipe's file, or a folder that has `recipe.yaml`.
        overrides: Parameters to change, such as `{"rl.steps": 20}`.
        start: A stage that is to run with all after it, up to date or not.
        only: The one stage to run, on the inputs that are there.
        local: False shows the run in Prefect, as `posttrain run` does.
        slots: Stages that may run at once; by default as many as the cores take.
        quiet: True writes no line about stages to standard error.

    Returns:
        What each stage made and measured; a notebook shows the table that a run ends with.

    Raises:
        UserError: The recipe is refused; nothing was written.
        StageFailed: A stage did not succeed; those before it are kept.
        KeyboardInterrupt: The run was asked to end, and all records are whole.

    """
    if start and only:
        raise UserError("start and only exclude each other; give one of them")
    words, began = override_words(overrides), time.monotonic()
    command = f"posttrain.run({str(recipe)!r}{f', {words}' if words else ''})"
    with open_session(Path(recipe), words) as session, session.workspace.locked(command):
        session.tries, session.ends_process = bool(words), False
        decisions = decide_all(session, start=start, only=only)
        asking_people(session.planner, decisions)
        if all(decision.action == "cached" for decision in decisions):
            session.settle(decisions)
            return _result(session, None, time.monotonic() - began)
        display = Display() if quiet else PlainDisplay()
        lanes = slots or session.recipe.run.lanes()
        runner = runner_of(local=local, slots=lanes)
        try:
            made = bring_up_to_date(session, decisions, runner, display, command)
        except Interrupted:
            raise KeyboardInterrupt(SENTENCE.replace("command", "call")) from None
        return _result(session, made.id, time.monotonic() - began)


def facts_of(session: Session) -> "tuple[list[StageFacts], dict[str, Path]]":
    """Gather what is known of each stage that there is a record of, and where its artifacts lie.

    Args:
        session: After a run, or where nothing was to run.

    Returns:
        Facts in the order of the flow, and paths by `stage.output`.

    """
    from posttrain.views.report import StageFacts

    # What another recipe made and this one took over lasted as long as it did there.
    names = list(session.dag.stages)
    lasting = session.ledger.history.durations(names)
    lasting |= session.ledger.history.durations(names, session.recipe.name)
    records = [session.records[name] for name in session.dag.order() if name in session.records]
    stages = [StageFacts(record, lasting.get(record.stage, 0.0)) for record in records]
    artifacts = {
        f"{record.stage}.{output.role}": session.workspace.output(output.path)
        for record in records
        for output in record.outputs
    }
    return stages, artifacts


def _result(session: Session, made: str | None, seconds: float) -> RunResult:
    from posttrain.views.report import summary_table

    facts, artifacts = facts_of(session)
    stages = tuple(
        FinishedStage(
            each.record.stage,
            each.record.status,
            each.seconds,
            {out.role: artifacts[f"{each.record.stage}.{out.role}"] for out in each.record.outputs},
            each.record.metrics,
        )
        for each in facts
    )
    name = session.recipe.name
    title = f"run {made} of {name}" if made else f"{name}: everything is up to date"
    return RunResult(name, made, stages, seconds, _grid_of(summary_table(facts, artifacts), title))


def _grid_of(table: "Table", title: str) -> Grid:
    """The plain text of a table that was made for a colored terminal."""
    from rich.text import Text

    def plain(value: object) -> str:
        return Text.from_markup(str(value)).plain

    columns = [[plain(cell) for cell in column.cells] for column in table.columns]
    title = f"{title}\n{plain(table.title)}" if table.title else title
    below = plain(table.caption).splitlines() if table.caption else []
    headings = [plain(column.header) for column in table.columns]
    return Grid(title, headings, list(zip(*columns, strict=True)), below)
