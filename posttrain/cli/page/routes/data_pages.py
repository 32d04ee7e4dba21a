"""Data: all tables, how their columns are spread, their versions, and two of these by row."""

from collections.abc import Sequence

import polars as pl
from fastapi import APIRouter, Request, Response

from posttrain.cli.page.catalog import MadeTable, tables_made, versions_of
from posttrain.cli.page.distributions import spreads_of
from posttrain.cli.page.figures import chart_of_spread, charts_of_curve
from posttrain.cli.page.project import Project
from posttrain.cli.page.render import project_shown, render_page
from posttrain.cli.page.table_diff import differing_rows
from posttrain.provenance.lineage.tables import collected
from posttrain.stage.errors import UserError
from posttrain.views.charts import chart_scripts, chart_style

data_routes = APIRouter()

_MOST_DIFFERING = 25
_KEPT = {"Cache-Control": "max-age=3600"}


@data_routes.get("/data")
def show_data(request: Request) -> Response:
    """Show the newest version of every table, and why rows were dropped."""
    project = project_shown(request)
    with project.ledger() as ledger:
        made = tables_made(ledger, project.root)
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
    record, table = project_shown(request).table(digest)
    spreads = [(each, None if each.chosen else chart_of_spread(each)) for each in spreads_of(table)]
    return render_page(request, "columns.html", section="Data", record=record, spreads=spreads)


@data_routes.get("/table/{digest}/curves")
def show_curves(request: Request, digest: str) -> Response:
    """Draw the metrics of a training."""
    record, table = project_shown(request).table(digest)
    if record.type != "curve":
        raise UserError(f"{record.path} is no table of curves, but of {record.type}")
    charts = charts_of_curve(collected(table.rows(), table))
    return render_page(request, "curves.html", section="Data", record=record, charts=charts)


@data_routes.get("/charts/{name}")
def read_chart_asset(name: str) -> Response:
    """Answer with what draws charts; it may be kept by the browser, as Vega is large."""
    if name == "style.css":
        return Response(chart_style(), media_type="text/css", headers=_KEPT)
    scripts = dict(zip(("vega.js", "draw.js"), chart_scripts(), strict=True))
    if name not in scripts:
        raise UserError(f"there is no {name} for charts")
    return Response(scripts[name], media_type="text/javascript", headers=_KEPT)


@data_routes.get("/table/{digest}/versions")
def show_versions(request: Request, digest: str) -> Response:
    """Show every version of a table."""
    project = project_shown(request)
    record = project.artifact(digest)
    with project.ledger() as ledger:
        versions = versions_of(ledger, project.root, record)
    return render_page(request, "versions.html", section="Data", record=record, versions=versions)


@data_routes.get("/data/diff")
def show_table_difference(request: Request, before: str, after: str) -> Response:
    """Compare two tables row by row."""
    project = project_shown(request)
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
