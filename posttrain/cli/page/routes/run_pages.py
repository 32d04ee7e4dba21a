"""Runs: the table of all, and the page of one."""

from fastapi import APIRouter, Request, Response

from posttrain.cli.page.render import project_shown, render_page
from posttrain.cli.page.run_list import last_attempts, list_run, live_stages, log_of
from posttrain.provenance.lineage.names import find_run

run_routes = APIRouter()

_MOST_RUNS = 100


@run_routes.get("/")
def show_runs(request: Request, most: int = _MOST_RUNS) -> Response:
    """Show the newest runs."""
    project = project_shown(request)
    with project.ledger() as ledger:
        found = ledger.runs(limit=most + 1)
        listed = [list_run(project, ledger, run) for run in found[:most]]
    return render_page(
        request, "runs.html", section="Runs", runs=listed, more=len(found) > most, most=most
    )


@run_routes.get("/live")
def show_live(request: Request) -> Response:
    """Show what runs now, as a part of a page that asks for it again and again."""
    project = project_shown(request)
    with project.ledger() as ledger:
        running = [run for run in ledger.runs(limit=_MOST_RUNS) if run.status == "running"]
    found = [(run, live_stages(project, run)) for run in running]
    return render_page(request, "live.html", running=found)


@run_routes.get("/run/{name}")
def show_run(request: Request, name: str) -> Response:
    """Show one run: its stages, what they made and measured, and their logs."""
    project = project_shown(request)
    with project.ledger() as ledger:
        run = find_run(ledger, name)
        listed = list_run(project, ledger, run)
        others = [each for each in ledger.runs() if each.recipe == run.recipe]
    older = [each for each in others if each.started < run.started]
    return render_page(
        request,
        "run.html",
        section="Runs",
        listed=listed,
        run=run,
        before=older[0] if older else None,
    )


@run_routes.get("/run/{name}/log/{stage}")
def show_log(request: Request, name: str, stage: str) -> Response:
    """Show the end of a stage's log."""
    project = project_shown(request)
    with project.ledger() as ledger:
        run = find_run(ledger, name)
        stage_runs = last_attempts(ledger.stage_runs(run.id))
    recorded = next((each.log_path for each in stage_runs if each.stage == stage), "")
    text = log_of(project, run, stage, recorded)
    return render_page(request, "log.html", section="Runs", run=run, stage=stage, text=text)
