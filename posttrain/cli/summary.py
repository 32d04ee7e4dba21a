"""What a person reads when a run is over: figures, the report page, and what did not repeat."""

import os
import platform
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path

import click
from rich.console import Console

from posttrain import __version__
from posttrain.cli.legends import say_legend
from posttrain.operations.python.runs import facts_of
from posttrain.pipeline.execution.session import Session
from posttrain.pipeline.gathered_claims import claims_of_recipe
from posttrain.provenance.ledger import REPORT_FILE, Run, conflicts, explain_conflict
from posttrain.provenance.lineage.artifacts import Finder
from posttrain.views.report import ReportExtras, StageFacts, summary_table, write_report
from posttrain.views.report.changes import RunChange
from posttrain.views.report.glance import glance

_VERSIONS = ("torch", "transformers", "polars", "prefect", "dvc", "mlflow")


def page_of(session: Session, *, alone: bool) -> Path:
    """Where the report page lies: that of a stage run `alone` with its log, the whole's stays."""
    if alone:
        (record,) = session.records.values()
        return session.workspace.run_dir(record.run_id) / REPORT_FILE
    return session.page


def show_summary(session: Session, seconds: float, *, alone: bool = False) -> None:
    """Print the summary of the session's stages, and write the report page where there is none."""
    stages, artifacts = facts_of(session)
    table = summary_table(stages, artifacts)
    Console().print(table)
    say_legend("policies" if table.title else "stages")
    page = page_of(session, alone=alone)
    if not page.exists():
        renew_report(session, page)
    _say_conflicts(session)
    click.echo(f"{os.path.relpath(page)} · done in {seconds:.1f} s", err=True)


def renew_report(session: Session, page: Path | None = None) -> Path:
    """Write the report page of the session's stages, beside its recipe or there; give its path."""
    stages, artifacts = facts_of(session)
    runs = [session.records[name].run_id for name in session.dag.order() if name in session.records]
    run = session.ledger.run(runs[-1]) if runs else None
    page = page or session.recipe.directory / REPORT_FILE
    page.parent.mkdir(parents=True, exist_ok=True)
    write_report(
        page,
        recipe_name=session.recipe.name,
        stages=stages,
        artifacts=artifacts,
        facts=_provenance(session, run),
        told=ReportExtras(
            claimed=partial(claims_of_recipe, session.recipe, session.workspace.root),
            glance=partial(_glance, session, run, stages, artifacts),
            before=partial(_against_the_run_before, session, run),
        ),
    )
    return page


def _glance(
    session: Session,
    run: Run | None,
    stages: Sequence[StageFacts],
    artifacts: Mapping[str, Path],
) -> Mapping[str, str]:
    from posttrain.cli.cost import told_of_cost
    from posttrain.operations.costs import costs_of_stages
    from posttrain.provenance.ledger.usage import total_usage

    records = session.ledger.stage_runs(run.id) if run is not None else []
    found = costs_of_stages(session.ledger, records, Finder(session.workspace.root))
    counted = [each for each in found if each.behind]
    whole = total_usage(each.behind for each in counted if each.behind)
    drawn = sum(each.tokens or 0 for each in counted)
    cost = told_of_cost(whole, session.recipe.cost_settings(), drawn) if counted else ""
    if counted and len(counted) < len(found):
        cost += f", in {len(counted)} of {len(found)} stages; nobody counted the others"
    return glance(run, stages, artifacts, method=session.recipe.method, cost=cost)


def _against_the_run_before(session: Session, run: Run | None) -> list[RunChange]:
    """What this run changed over the last one of the recipe that ended well, if there was one."""
    from posttrain.publishing import changes

    earlier = changes.run_before(session.ledger, run) if run is not None else None
    if run is None or earlier is None:
        return []
    before, after = (changes.state_of_run(session.ledger, each) for each in (earlier, run))
    return [changes.changes_between(before, after, Finder(session.workspace.root))]


def _provenance(session: Session, run: Run | None) -> Mapping[str, str]:
    settings = session.recipe.run
    commit = "none" if run is None or run.git_commit is None else run.git_commit[:12]
    changed = " with local changes" if run is not None and run.git_dirty else ""
    overrides = ", ".join(f"{key}={value}" for key, value in session.recipe.overrides.items())
    return {
        "recipe": str(session.recipe.path.relative_to(session.workspace.root)),
        "run": "none" if run is None else run.id,
        "commit": commit + changed,
        "overrides": overrides or "none",
        "seed": str(settings.seed),
        "threads of a stage": str(settings.threads),
        "device": settings.device,
        "reproducibility": settings.level,
        "python": platform.python_version(),
        "versions": ", ".join(
            [f"posttrain {__version__}", *(f"{name} {version(name)}" for name in _VERSIONS)]
        ),
    }


def _say_conflicts(session: Session) -> None:
    """One key, two results: that must not pass in silence, whatever was at fault."""
    keys = [record.key for record in session.records.values()]
    for conflict in conflicts(session.ledger.store, keys):
        click.echo(
            f"warning: stage '{conflict.stage}' has made {len(conflict.runs)} different outputs "
            f"from the same key {conflict.key[:12]}: {explain_conflict(conflict.runs)}; see"
            " posttrain audit",
            err=True,
        )
