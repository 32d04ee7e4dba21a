"""Data: all tables, how their columns are spread, their versions, and two of these by row."""

from collections.abc import Sequence

import polars as pl
from fastapi import APIRouter, Request, Response

from posttrain.ui.catalog import MadeTable, tables_made, versions_of
from posttrain.ui.distributions import spreads_of
from posttrain.ui.project import Project
from posttrain.ui.render import project_of, render_page
from posttrain.ui.table_diff import differing_rows

data_routes = APIRouter()

_MOST_DIFFERING = 25


@data_routes.get("/data")
def show_data(request: Request) -> Response:
    """Show the newest version of every table, and why rows were dropped."""
    project = project_of(request)
    with project.ledger() as ledger:
        made = tables_made(ledger)
    newest: dict[str, MadeTable] = {}
    versions: dict[str, int] = {}
    for each in made:
        newest.setdefault(each.record.path, each)
        versions[each.record.path] = versions.get(each.record.path, 0) + 1
    dropped = [each for each in newest.values() if each.record.type == "dropped"]
    return render_page(
        request,
        "data.html",
        section="Data",
        tables=list(newest.values()),
        versions=versions,
        dropped=_by_reason(project, dropped),
    )


@data_routes.get("/table/{digest}/columns")
def show_columns(request: Request, digest: str) -> Response:
    """Show how the values of each column are spread."""
    record, table = project_of(request).table(digest)
    return render_page(
        request, "columns.html", section="Data", record=record, spreads=spreads_of(table)
    )


@data_routes.get("/table/{digest}/versions")
def show_versions(request: Request, digest: str) -> Response:
    """Show every version of a table."""
    project = project_of(request)
    record = project.artifact(digest)
    with project.ledger() as ledger:
        versions = versions_of(ledger, record)
    return render_page(request, "versions.html", section="Data", record=record, versions=versions)


@data_routes.get("/data/diff")
def show_table_difference(request: Request, before: str, after: str) -> Response:
    """Compare two tables row by row."""
    project = project_of(request)
    (old, first), (new, second) = project.table(before), project.table(after)
    found = differing_rows(first, second, most=_MOST_DIFFERING)
    return render_page(request, "table_diff.html", section="Data", old=old, new=new, found=found)


def _by_reason(
    project: Project, dropped: Sequence[MadeTable]
) -> list[tuple[MadeTable, list[tuple[str, int]]]]:
    """Rows by reason of each table whose bytes are there, the most frequent reason first."""
    found = []
    for each in dropped:
        file = project.file(each.record)
        if file is not None and "reason" in pl.read_parquet_schema(file):
            counts = pl.scan_parquet(file).group_by("reason").len()
            rows = counts.sort("len", "reason", descending=[True, False]).collect().rows()
            found.append((each, [(str(reason), int(count)) for reason, count in rows]))
    return [(each, rows) for each, rows in found if rows]
