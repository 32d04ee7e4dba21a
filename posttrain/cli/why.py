"""`posttrain why`: the first thing that made a stage run again, or will make it."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from posttrain.cli.options import Documented, overrides_option, recipe_argument
from posttrain.stage.errors import UserError, nearest

if TYPE_CHECKING:
    from posttrain.pipeline.execution.session import Session
    from posttrain.pipeline.explain import ComparedKey, Explanation
    from posttrain.pipeline.plan import Decision
    from posttrain.provenance.ledger import StageRun

_MAX_LINES = 60
_VERBS = {"run": "will run", "pending": "may run", "restore": "will come from the cache"}
_COLORS = {"+": "green", "-": "red", "@": "cyan"}


@click.command(cls=Documented)
@click.argument("stage")
@recipe_argument
@click.option(
    "--between",
    nargs=2,
    metavar="RUN RUN",
    help="Compare the stage in two runs: an id, the start of one, latest or latest~N.",
)
@overrides_option
@click.option("-v", "--verbose", is_flag=True, help="Every difference, with both values.")
def why(
    stage: str,
    recipe: Path,
    between: tuple[str, str] | None,
    overrides: tuple[str, ...],
    verbose: bool,
) -> None:
    """Name the first part of STAGE's key that differs, with both values; code as a diff.

    Of a variable that the recipe declares only hashes of its values are kept, and shown.

    Without --between: between its last record and now, where it would run; where it is up to date,
    between its last two executions.

    Examples:
      posttrain why rl                          what will make it run, or made it run the last time
      posttrain why rl -v                       every difference, with every diff
      posttrain why rl --between latest~1 latest

    """
    from posttrain.pipeline.execution.session import open_session

    with open_session(recipe, overrides) as session:
        if between:
            before, after = (_of_run(session, stage, name) for name in between)
            _compare(session, before, after, verbose=verbose)
        else:
            _explain_now(session, session.require(stage), verbose=verbose)


def _explain_now(session: "Session", stage: str, *, verbose: bool) -> None:
    decisions = {decision.stage: decision for decision in session.planner.plan()}
    executions = session.ledger.history.executions(stage, session.recipe.name, limit=2)
    last = session.ledger.history.latest(stage, session.recipe.name) or next(iter(executions), None)
    if decisions[stage].action == "missing":
        click.echo("; ".join(decisions[stage].reasons))
    elif last is None:
        click.echo(f"{stage} never ran: there is nothing to compare with")
    elif decisions[stage].action == "cached" and _adopted(session, decisions[stage].known):
        pass
    elif decisions[stage].action != "cached":
        _compare_with_now(session, decisions, stage, last, verbose=verbose)
    elif len(executions) < 2:
        click.echo(f"{stage} is up to date; it ran once, in run {last.run_id}")
    else:
        click.echo(f"{stage} is up to date; why it ran the last time:")
        _compare(session, executions[1], executions[0], verbose=verbose)


def _adopted(session: "Session", record: "StageRun | None") -> bool:
    """Say of a result that was taken over from an older version from where, and why."""
    if record is None:
        return False
    adoption = session.ledger.annotations.adoptions_of([record.key]).get(record.key)
    if adoption is None:
        return False
    source = session.ledger.stage_run(adoption.source)
    made_in = f"run {_named(source)}" if source is not None else adoption.source
    click.echo(f"{record.stage} is up to date; adopted from {made_in}: {adoption.reason}")
    for sentence in adoption.differences:
        click.echo(f"  {sentence}")
    return True


def _of_run(session: "Session", stage: str, name: str) -> "StageRun":
    from posttrain.provenance.lineage.names import find_run

    run = find_run(session.ledger, name)
    records = session.ledger.stage_runs(run.id)
    of_stage = [record for record in records if record.stage == stage]
    if not of_stage:
        hint = nearest(stage, {record.stage for record in records})
        raise UserError(f"run {run.id} has no stage '{stage}'{hint}")
    return of_stage[-1]


def _compare(session: "Session", before: "StageRun", after: "StageRun", *, verbose: bool) -> None:
    from posttrain.pipeline.explain import Explanation
    from posttrain.provenance.ledger import explain_conflict

    found = Explanation.between(_side(session, before), _side(session, after))
    click.echo(f"{after.stage}: from run {_named(before)} to run {_named(after)}")
    if found.differences:
        _show(session, found, verbose=verbose)
        return
    click.echo(f"nothing differs: both have the key {after.key[:12]}")
    if before.status == "failed":
        click.echo(f"the first attempt failed: {before.error}")
    elif before.outputs and after.outputs and _outputs(before) != _outputs(after):
        means = explain_conflict((after, before))
        click.echo(f"but they made different outputs: {means}; see posttrain audit")


def _compare_with_now(
    session: "Session",
    decisions: Mapping[str, "Decision"],
    stage: str,
    last: "StageRun",
    *,
    verbose: bool,
) -> None:
    from posttrain.pipeline.explain import Explanation

    decision = decisions[stage]
    click.echo(f"{stage} {_VERBS[decision.action]}; compared with run {_named(last)}:")
    found = Explanation.between(_side(session, last), _side_of_now(session, decisions, stage, last))
    if found.differences:
        _show(session, found, verbose=verbose)
    else:
        for line in decision.reasons:
            click.echo(f"  {line}")
    for name in session.dag.upstream(stage):
        if decisions[name].action in ("run", "pending"):
            click.echo(f"what it reads from '{name}' may change: posttrain why {name}")


def _side(session: "Session", record: "StageRun") -> "ComparedKey":
    from posttrain.pipeline.explain import ComparedKey

    run = session.ledger.run(record.run_id)
    return ComparedKey.of(record, run.git_commit if run is not None else None)


def _side_of_now(
    session: "Session", decisions: Mapping[str, "Decision"], stage: str, last: "StageRun"
) -> "ComparedKey":
    """The key as it would be now; inputs that are still to be made count as they were."""
    from posttrain.pipeline.explain import ComparedKey

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


def _show(session: "Session", found: "Explanation", *, verbose: bool) -> None:
    from posttrain.pipeline.explain import Sources

    sources = Sources(
        session.workspace.root, session.planner.keys.archive, session.planner.keys.packages
    )
    shown = found.differences if verbose else found.differences[:1]
    for difference in shown:
        click.echo(f"  {difference.sentence}")
        lines = found.details(difference, sources)
        cut = lines if verbose else lines[:_MAX_LINES]
        for line in cut:
            click.echo("    " + (_colored(line) if difference.component == "code" else line))
        if len(cut) < len(lines):
            click.echo(f"    ... {len(lines) - len(cut)} more lines: -v")
    if len(shown) < len(found.differences):
        rest = len(found.differences) - len(shown)
        click.echo(f"  and {rest} more: {found.counts(skip=len(shown))} (-v shows them)")


def _colored(line: str) -> str:
    color = _COLORS.get(line[:1])
    return click.style(line, fg=color) if color else line


def _named(record: "StageRun") -> str:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.ended))
    return f"{record.run_id} ({record.status}, {moment} UTC)"


def _outputs(record: "StageRun") -> dict[str, str]:
    return {artifact.role: artifact.digest for artifact in record.outputs}
