"""Tables: their rows by windows, and one row."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from posttrain.provenance.ledger import ArtifactRecord
from posttrain.stage.errors import UserError
from posttrain.ui.catalog import newest_of_kind, versions_of
from posttrain.ui.grid import EXAMPLES, described
from posttrain.ui.project import Project
from posttrain.ui.render import project_shown, render_page
from posttrain.ui.windows import ListedTable, Memory, RowQuestion, list_table

table_routes = APIRouter()

_BLOCK = 100
_MOST_COUNT = 1000
_tables: Memory[ListedTable] = Memory(8)
_numbers: Memory[Any] = Memory(32)


def open_listed(project: Project, digest: str) -> tuple[ArtifactRecord, ListedTable]:
    """Open a table with what is listed of it, kept for the next question.

    Args:
        project: That has it.
        digest: Its digest, or the beginning.

    Returns:
        Its record, and its rows.

    """
    record, table = project.table(digest)
    return record, _tables.get(table.file, lambda: list_table(table, record.type))


def _asked(where: str, search: str, chosen: list[str], sort: str, descending: bool) -> RowQuestion:
    pairs = (each.partition(":")[::2] for each in chosen if each)
    return RowQuestion(where.strip(), search.strip(), tuple(pairs), sort, descending)


@table_routes.get("/rollouts")
def show_newest_rollouts(request: Request) -> Response:
    """Show the rollouts that were made last."""
    project = project_shown(request)
    with project.ledger() as ledger:
        newest = newest_of_kind(ledger, "rollouts")
    if newest is None:
        return render_page(request, "no_rollouts.html", section="Rollouts")
    return RedirectResponse(f"/table/{newest.digest[:16]}")


@table_routes.get("/table/{digest}")
def show_table(  # noqa: PLR0913 - each is one field of the form
    request: Request,
    digest: str,
    where: str = "",
    search: str = "",
    chosen: Annotated[list[str], Query(alias="is")] = [],  # noqa: B006 - FastAPI copies it
    sort: str = "",
    descending: bool = False,
) -> Response:
    """Show the rows of a table."""
    project = project_shown(request)
    record, listed = open_listed(project, digest)
    asked = _asked(where, search, chosen, sort, descending)
    problem = ""
    try:
        first = _window(listed, asked, 0, _BLOCK)
    except UserError as error:
        problem, first = str(error), {"total": 0, "rows": []}
    with project.ledger() as ledger:
        versions = versions_of(ledger, record)
    grid = described(listed, asked, first, at=f"/table/{record.digest[:16]}")
    return render_page(
        request,
        "table.html",
        section="Rollouts" if record.type == "rollouts" else "Data",
        record=record,
        grid=grid,
        asked=asked,
        problem=problem,
        # They ask for all rows; a table that is opened anew is shown before it has been read.
        choices=listed.choices() if listed.read.done or asked.chosen else None,
        example=EXAMPLES.get(record.type, "length(id) > 0"),
        schema=listed.table.rows().collect_schema().names(),
        versions=versions,
    )


@table_routes.get("/table/{digest}/choices")
def show_choices(request: Request, digest: str) -> Response:
    """Show what rows can be chosen by, as a part of the page of a table."""
    _, listed = open_listed(project_shown(request), digest)
    return render_page(request, "choices.html", choices=listed.choices(), chosen=())


@table_routes.get("/table/{digest}/rows")
def read_window(  # noqa: PLR0913 - each is one field of the form
    request: Request,
    digest: str,
    start: Annotated[int, Query(ge=0)] = 0,
    count: Annotated[int, Query(ge=1, le=_MOST_COUNT)] = _BLOCK,
    where: str = "",
    search: str = "",
    chosen: Annotated[list[str], Query(alias="is")] = [],  # noqa: B006 - FastAPI copies it
    sort: str = "",
    descending: bool = False,
) -> Response:
    """Read a window on the rows that are asked for, as JSON."""
    _, listed = open_listed(project_shown(request), digest)
    asked = _asked(where, search, chosen, sort, descending)
    try:
        return JSONResponse(_window(listed, asked, start, count))
    except UserError as error:
        return JSONResponse({"problem": str(error)})


def _window(listed: ListedTable, asked: RowQuestion, start: int, count: int) -> dict[str, Any]:
    numbers = _numbers.get((listed.table.file, asked), lambda: listed.numbers(asked))
    return {"total": len(numbers), "rows": listed.window(numbers, start, count)}
