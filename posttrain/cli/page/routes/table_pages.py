"""Tables: their rows by windows, and one row."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from posttrain.cli.page.catalog import newest_of_kind, others_of_kind, versions_of
from posttrain.cli.page.grid import EXAMPLES, described
from posttrain.cli.page.opened import open_listed, question_in, rows_asked
from posttrain.cli.page.render import project_shown, render_page
from posttrain.cli.page.windows import ListedTable, RowQuestion
from posttrain.stage.errors import UserError

table_routes = APIRouter()

_BLOCK = 100
_MOST_COUNT = 1000
_MOST_OTHERS = 8


@table_routes.get("/rollouts")
def show_newest_rollouts(request: Request) -> Response:
    """Show the rollouts that were made last."""
    project = project_shown(request)
    with project.ledger() as ledger:
        newest = newest_of_kind(ledger, project.root, "rollouts")
    if newest is None:
        return render_page(request, "no_rollouts.html", section="Rollouts")
    return RedirectResponse(f"/table/{newest.digest[:16]}")


@table_routes.get("/table/{digest}")
def show_table(request: Request, digest: str) -> Response:
    """Show the rows of a table."""
    project = project_shown(request)
    record, listed = open_listed(project, digest)
    asked = question_in(request)
    problem = ""
    try:
        first = _window(listed, asked, 0, _BLOCK)
    except UserError as error:
        problem, first = str(error), {"total": 0, "rows": []}
    with project.ledger() as ledger:
        versions = versions_of(ledger, project.root, record)
        drawn = record.type == "rollouts"
        others = others_of_kind(ledger, project.root, record)[:_MOST_OTHERS] if drawn else []
    grid = described(listed, asked, first, at=f"/table/{record.digest[:16]}")
    return render_page(
        request,
        "table.html",
        section="Rollouts" if drawn else "Data",
        record=record,
        grid=grid,
        asked=asked,
        problem=problem,
        # They ask for all rows; a table that is opened anew is shown before it has been read.
        choices=listed.choices() if listed.read.done or asked.chosen else None,
        example=EXAMPLES.get(record.type, "length(id) > 0"),
        schema=listed.table.rows().collect_schema().names(),
        versions=versions,
        others=others,
    )


@table_routes.get("/table/{digest}/choices")
def show_choices(request: Request, digest: str) -> Response:
    """Show what rows can be chosen by, as a part of the page of a table."""
    _, listed = open_listed(project_shown(request), digest)
    return render_page(request, "choices.html", choices=listed.choices(), chosen=())


@table_routes.get("/table/{digest}/rows")
def read_window(
    request: Request,
    digest: str,
    start: Annotated[int, Query(ge=0)] = 0,
    count: Annotated[int, Query(ge=1, le=_MOST_COUNT)] = _BLOCK,
) -> Response:
    """Read a window on the rows that are asked for, as JSON."""
    _, listed = open_listed(project_shown(request), digest)
    asked = question_in(request)
    try:
        return JSONResponse(_window(listed, asked, start, count))
    except UserError as error:
        return JSONResponse({"problem": str(error)})


def _window(listed: ListedTable, asked: RowQuestion, start: int, count: int) -> dict[str, Any]:
    numbers = rows_asked(listed, asked)
    return {"total": len(numbers), "rows": listed.window(numbers, start, count)}
