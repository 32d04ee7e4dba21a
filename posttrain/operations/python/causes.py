"""`posttrain.why`: what made a stage run, or will make it, with both values."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from posttrain.operations.python.project import AnyPath, Overrides, override_words
from posttrain.operations.python.shown import Displayed, Grid
from posttrain.pipeline.explain import ComparedKey, Explanation, Sources
from posttrain.provenance.ledger import StageRun, explain_conflict
from posttrain.provenance.lineage.names import find_run
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    from posttrain.pipeline.execution.session import Session
    from posttrain.pipeline.plan import Decision

_MAX_LINES = 60
_VERBS = {"run": "will run", "pending": "may run", "restore": "will come from the cache"}


@dataclass(frozen=True)
class Cause:
    """One thing that differs between two keys of a stage.

    Attributes:
        sentence: What differs.
        component: What sort of thing it is: `code`, `params`, `inputs`, `packages`, `runtime`.
        details: Both values, or of code the diff; empty where only the first cause was asked for.

    """

    sentence: str
    component: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Why(Displayed):
    """What made a stage run, or will make it.

    Attributes:
        stage: Its name.
        headings: What was compared with what.
        causes: What differs, what to look at first in front.
        rest: How many causes of which sort follow the first, in words; empty where none does.
        closing: What else is to be known.

    """

    stage: str
    headings: tuple[str, ...]
    causes: tuple[Cause, ...] = ()
    rest: str = ""
    closing: tuple[str, ...] = ()

    def lines(self, *, verbose: bool = False, paint: Callable[[str], str] = str) -> Iterator[str]:
        """Write it for a terminal.

        Args:
            verbose: Every cause in place of the first, and every line of it.
            paint: Colors a line of a diff.

        Yields:
            Lines.

        """
        yield from self.headings
        shown = self.causes if verbose else self.causes[:1]
        for cause in shown:
            yield f"  {cause.sentence}"
            cut = cause.details if verbose else cause.details[:_MAX_LINES]
            yield from (
                "    " + (paint(line) if cause.component == "code" else line) for line in cut
            )
            if len(cut) < len(cause.details):
                yield f"    ... {len(cause.details) - len(cut)} more lines: -v"
        if len(shown) < len(self.causes):
            yield f"  and {len(self.causes) - len(shown)} more: {self.rest} (-v shows them)"
        yield from self.closing

    def grid(self) -> Grid:
        """See `Displayed`: every cause in a row."""
        rows = [(each.component, each.sentence, "\n".join(each.details)) for each in self.causes]
        title = "\n".join(self.headings)
        return Grid(title, ("what", "how it differs", "details"), rows, self.closing)

    def __repr__(self) -> str:
        return "\n".join(self.lines(verbose=True))


def why(
    stage: str,
    recipe: AnyPath = ".",
    overrides: Overrides = (),
    *,
    between: tuple[str, str] | None = None,
) -> Why:
    """Name what differs between a stage's last record and now, or between two runs.

    Where the stage is up to date, its last two executions are compared.

    Args:
        stage: Its name in the flow.
        recipe: A recipe's file, or a folder that has `recipe.yaml`.
        overrides: Parameters to change, such as `{"rl.steps": 20}`.
        between: Two runs: an id, the start of one, `latest` or `latest~N`.

    Returns:
        Everything that differs, with both values and code as a diff.

    Raises:
        UserError: There is no such stage or run.

    """
    from posttrain.pipeline.execution.session import open_session

    with open_session(Path(recipe), override_words(overrides)) as session:
        return explain_stage(session, stage, between=between, verbose=True)


def explain_stage(
    session: "Session", stage: str, *, between: tuple[str, str] | None, verbose: bool
) -> Why:
    """Compare two keys of a stage.

    Args:
        session: Of the recipe.
        stage: Its name.
        between: Two runs; None compares with now.
        verbose: Look up the details of every cause, and not of the first alone.

    Returns:
        What differs.

    """
    if between:
        before, after = (_of_run(session, stage, name) for name in between)
        return _compared(session, before, after, verbose=verbose)
    return _explained_now(session, session.require(stage), verbose=verbose)


def _explained_now(session: "Session", stage: str, *, verbose: bool) -> Why:
    decisions = {decision.stage: decision for decision in session.planner.plan()}
    decision = decisions[stage]
    executions = session.ledger.history.executions(stage, session.recipe.name, limit=2)
    last = session.ledger.history.latest(stage, session.recipe.name) or next(iter(executions), None)
    if decision.action == "missing":
        return Why(stage, ("; ".join(decision.reasons),))
    if last is None:
        return Why(stage, (f"{stage} never ran: there is nothing to compare with",))
    if decision.action != "cached":
        return _compared_with_now(session, decisions, stage, last, verbose=verbose)
    if told := _adopted(session, decision.known):
        return Why(stage, told)
    if len(executions) < 2:  # noqa: PLR2004 - two are compared
        return Why(stage, (f"{stage} is up to date; it ran once, in run {last.run_id}",))
    found = _compared(session, executions[1], executions[0], verbose=verbose)
    first = f"{stage} is up to date; why it ran the last time:"
    return replace(found, headings=(first, *found.headings))


def _adopted(session: "Session", record: StageRun | None) -> tuple[str, ...]:
    """Say of a result that was taken over from an older version from where, and why."""
    if record is None:
        return ()
    adoption = session.ledger.annotations.adoptions_of([record.key]).get(record.key)
    if adoption is None:
        return ()
    source = session.ledger.stage_run(adoption.source)
    made_in = f"run {_named(source)}" if source is not None else adoption.source
    first = f"{record.stage} is up to date; adopted from {made_in}: {adoption.reason}"
    return (first, *(f"  {sentence}" for sentence in adoption.differences))


def _of_run(session: "Session", stage: str, name: str) -> StageRun:
    run = find_run(session.ledger, name)
    records = session.ledger.stage_runs(run.id)
    of_stage = [record for record in records if record.stage == stage]
    if not of_stage:
        hint = nearest(stage, {record.stage for record in records})
        raise UserError(f"run {run.id} has no stage '{stage}'{hint}")
    return of_stage[-1]


def _compared(session: "Session", before: StageRun, after: StageRun, *, verbose: bool) -> Why:
    found = Explanation.between(_side(session, before), _side(session, after))
    heading = f"{after.stage}: from run {_named(before)} to run {_named(after)}"
    if found.differences:
        return _told(session, after.stage, heading, found, verbose=verbose)
    closing = [f"nothing differs: both have the key {after.key[:12]}"]
    if before.status == "failed":
        closing.append(f"the first attempt failed: {before.error}")
    elif before.outputs and after.outputs and _outputs(before) != _outputs(after):
        means = explain_conflict((after, before))
        closing.append(f"but they made different outputs: {means}; see posttrain audit")
    return Why(after.stage, (heading,), closing=tuple(closing))


def _compared_with_now(
    session: "Session",
    decisions: "Mapping[str, Decision]",
    stage: str,
    last: StageRun,
    *,
    verbose: bool,
) -> Why:
    decision = decisions[stage]
    heading = f"{stage} {_VERBS[decision.action]}; compared with run {_named(last)}:"
    found = Explanation.between(_side(session, last), _side_of_now(session, decisions, stage, last))
    behind = tuple(
        f"what it reads from '{name}' may change: posttrain why {name}"
        for name in session.dag.upstream(stage)
        if decisions[name].action in ("run", "pending")
    )
    if not found.differences:
        return Why(stage, (heading, *(f"  {line}" for line in decision.reasons)), closing=behind)
    return replace(_told(session, stage, heading, found, verbose=verbose), closing=behind)


def _told(
    session: "Session", stage: str, heading: str, found: Explanation, *, verbose: bool
) -> Why:
    keys = session.planner.keys
    sources = Sources(session.workspace.root, keys.archive, keys.packages)
    causes = [
        Cause(
            each.sentence,
            each.component,
            tuple(found.details(each, sources)) if verbose or not number else (),
        )
        for number, each in enumerate(found.differences)
    ]
    return Why(stage, (heading,), tuple(causes), found.counts() if len(causes) > 1 else "")


def _side(session: "Session", record: StageRun) -> ComparedKey:
    run = session.ledger.run(record.run_id)
    return ComparedKey.of(record, run.git_commit if run is not None else None)


def _side_of_now(
    session: "Session", decisions: "Mapping[str, Decision]", stage: str, last: StageRun
) -> ComparedKey:
    """The key as it would be now; inputs that are still to be made count as they were."""
    upstream = [decisions[name] for name in session.dag.upstream(stage)]
    if all(decision.known is not None for decision in upstream):
        made = {
            decision.stage: {record.role: record for record in decision.known.outputs}
            for decision in upstream
            if decision.known is not None
        }
        inputs = session.planner.input_records(stage, made)
    else:
        inputs = {record.role: record for record in last.inputs}
    key = session.planner.keys.key(stage, {role: record.digest for role, record in inputs.items()})
    return ComparedKey("now", key.components, inputs)


def _named(record: StageRun) -> str:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.ended))
    return f"{record.run_id} ({record.status}, {moment} UTC)"


def _outputs(record: StageRun) -> dict[str, str]:
    return {artifact.role: artifact.digest for artifact in record.outputs}
