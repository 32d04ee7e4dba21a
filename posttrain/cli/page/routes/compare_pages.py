"""Two runs side by side, and one metric over all of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from posttrain.cli.page.comparison import side_by_side
from posttrain.cli.page.figures import chart_of_metric
from posttrain.cli.page.headlines import evaluated_share, evaluations_of
from posttrain.cli.page.metric_history import MeasuredFigure, history_of_metric, metric_names
from posttrain.cli.page.project import Project
from posttrain.cli.page.render import project_shown, render_page
from posttrain.cli.page.run_list import last_attempts, list_run
from posttrain.provenance.ledger import Ledger
from posttrain.provenance.lineage.names import find_run
from posttrain.stage.errors import UserError

compare_routes = APIRouter()

_MOST_LOOKED_AT = 20


@compare_routes.get("/compare")
def show_comparison(request: Request, run: Annotated[list[str], Query()] = []) -> Response:  # noqa: B006 - FastAPI copies it
    """Compare two runs, the older one first."""
    if len(run) != 2:
        raise UserError(f"two runs are compared, and {len(run)} were marked; mark two of them")
    project = project_shown(request)
    with project.ledger() as ledger:
        old, new = sorted((find_run(ledger, name) for name in run), key=lambda each: each.started)
        found = side_by_side(ledger, project.root, old, new)
        both = [list_run(project, ledger, each) for each in (old, new)]
    return render_page(request, "compare.html", section="Runs", both=both, found=found)


@compare_routes.get("/metrics")
def show_metric(request: Request, name: str = "") -> Response:
    """Show a metric over all runs."""
    project = project_shown(request)
    with project.ledger() as ledger:
        names = metric_names(ledger)
        chosen = name or _telling(project, ledger, names)
        figures = history_of_metric(ledger, chosen) if chosen else []
        figures = [_with_interval(project, ledger, chosen, each) for each in figures]
    return render_page(
        request,
        "metrics.html",
        section="Runs",
        names=names,
        chosen=chosen,
        figures=figures,
        chart=chart_of_metric(chosen, figures),
    )


def _telling(project: Project, ledger: Ledger, names: Sequence[str]) -> str:
    """What the last policy of the newest evaluation solves; the first metric without one."""
    for run in ledger.runs(limit=_MOST_LOOKED_AT):
        for evaluation in evaluations_of(project, last_attempts(ledger.stage_runs(run.id))):
            last = evaluation.policies[-1]
            told = f"{evaluation.stage}/{last.name}/pass_at_{last.pass_at[0].k}"
            if told in names:
                return told
    return names[0] if names else ""


def _with_interval(
    project: Project, ledger: Ledger, name: str, figure: MeasuredFigure
) -> MeasuredFigure:
    """The figure with the interval that its evaluation reports, where its stage measured none."""
    if figure.low is not None:
        return figure
    stage_runs = last_attempts(ledger.stage_runs(figure.run_id))
    share = evaluated_share(project, stage_runs, name)
    return figure if share is None else replace(figure, low=share.low, high=share.high)
