"""One row: a rollout by tokens, its group, its problem's history, and where it came from."""

from typing import Any

import polars as pl
from fastapi import APIRouter, Request, Response

from posttrain.cli.page.catalog import tables_made
from posttrain.cli.page.figures import chart_of_problem
from posttrain.cli.page.opened import asked_again, neighbors, open_listed, question_in, rows_asked
from posttrain.cli.page.project import Project
from posttrain.cli.page.render import project_shown, render_page
from posttrain.cli.page.rollouts import (
    decoder_for,
    group_of,
    history_of,
    messages_of,
    problem_of,
    spans_by_token,
)
from posttrain.operations.reviewing import reviews_on
from posttrain.operations.row_origins import ends_of_trace, verdicts_on
from posttrain.provenance.ledger import ArtifactRecord, Ledger
from posttrain.provenance.lineage.names import find_node
from posttrain.provenance.lineage.rows import trace
from posttrain.provenance.lineage.tables import Table, collected, open_tables
from posttrain.stage.errors import UserError

row_routes = APIRouter()

_MOST_ORIGINS = 5
_ROLLOUT = {"token_ids", "spans", "logprobs", "advantages", "components", "step", "group"}


@row_routes.get("/table/{digest}/row/{number}")
def show_row(request: Request, digest: str, number: int, problem: str = "") -> Response:
    """Show one row of a table, as its kind asks for."""
    project = project_shown(request)
    record, listed = open_listed(project, digest)
    asked, table = question_in(request), listed.table
    row = _row(table, number)
    before, after = neighbors(rows_asked(listed, asked), number)
    common: dict[str, Any] = {"record": record, "number": number, "row": row, "refused": problem}
    common |= {"asked": asked_again(asked), "before": before, "after": after}
    common["said"] = reviews_on(project.root, record.path, row["id"]) if "id" in row else None
    with project.ledger() as ledger:
        common["problem"] = _problem(project, ledger, record, row)
        if row.keys() >= _ROLLOUT:
            spans = list(spans_by_token(row, decoder_for(project, ledger, record)))
            verdicts = _verdicts(project, ledger, row)
            return render_page(
                request,
                "rollout.html",
                section="Rollouts",
                spans=spans,
                tokens=[[_known(span, token) for token in span.tokens] for span in spans],
                group=group_of(table, row).to_dicts(),
                verdicts=verdicts,
                **common,
            )
    messages = messages_of(row) if {"prompt", "text"} <= row.keys() else []
    return render_page(request, "row.html", section="Data", messages=messages, **common)


@row_routes.get("/table/{digest}/row/{number}/origin")
def show_origin(request: Request, digest: str, number: int) -> Response:
    """Show the rows of earlier tables that a row was made from, and the lines of files."""
    project = project_shown(request)
    record, table = project.table(digest)
    head = _frame(table, number)
    chosen = pl.Series([number], dtype=pl.UInt32)
    with project.ledger() as ledger:
        tables = open_tables(ledger, project.root)
        node = find_node(ledger, record.digest, root=project.root, cwd=project.root)
        found = trace(tables, node, chosen)
        ends = ends_of_trace(tables, node, head, found, most=_MOST_ORIGINS)
    steps = [
        {
            "path": step.table.path,
            "digest": step.table.id.partition(":")[2],
            "count": len(step.numbers),
            "stage": step.table.maker.name if step.table.maker else "",
            "rows": list(
                zip(step.numbers.to_list(), step.sample(_MOST_ORIGINS).to_dicts(), strict=False)
            ),
        }
        for step in found.steps
    ]
    return render_page(
        request,
        "origin.html",
        section="Rollouts" if record.type == "rollouts" else "Data",
        record=record,
        number=number,
        steps=steps,
        ends=ends,
        gone=found.gone,
    )


@row_routes.get("/table/{digest}/problem/{problem_id}")
def show_problem(request: Request, digest: str, problem_id: str) -> Response:
    """Show what became of a problem over the steps of a training."""
    project = project_shown(request)
    record, table = project.table(digest)
    if "problem_id" not in pl.read_parquet_schema(table.file) or record.type != "rollouts":
        raise UserError(f"{record.path} is no table of rollouts, so it has no history of problems")
    history = history_of(table, problem_id)
    with project.ledger() as ledger:
        problem = problem_of(project, ledger, record, problem_id)
    by_step = (
        history.group_by("step", maintain_order=True)
        .agg(
            pl.len().alias("rollouts"),
            pl.col("reward").mean(),
            pl.col("solved").cast(pl.Float64).mean(),
            pl.col("tokens").mean(),
        )
        .to_dicts()
    )
    return render_page(
        request,
        "problem_history.html",
        section="Rollouts",
        record=record,
        problem=problem,
        problem_id=problem_id,
        by_step=by_step,
        chart=chart_of_problem(by_step),
        rows=history.to_dicts(),
    )


def _row(table: Table, number: int) -> dict[str, Any]:
    return _frame(table, number).row(0, named=True)


def _frame(table: Table, number: int) -> pl.DataFrame:
    # A negative number would count from the end.
    rows = collected(table.rows().slice(number, 1 if number >= 0 else 0), table)
    if not rows.height:
        raise UserError(f"{table.path} has no row {number}")
    return rows


def _problem(
    project: Project, ledger: Ledger, record: ArtifactRecord, row: dict[str, Any]
) -> dict[str, Any] | None:
    return problem_of(project, ledger, record, row["problem_id"]) if "problem_id" in row else None


def _verdicts(project: Project, ledger: Ledger, row: dict[str, Any]) -> list[dict[str, object]]:
    made = [
        each.record for each in tables_made(ledger, project.root) if each.record.type == "verdicts"
    ]
    files = [(each, project.file(each)) for each in made]
    tables = [Table(each.digest, each.path, file) for each, file in files if file is not None]
    return verdicts_on(tables, problem_id=row["problem_id"], text=row["text"], row_id=row["id"])


def _known(span: Any, token: Any) -> list[Any]:
    return [token.id, token.logprob, token.advantage, token.reward, span.learned, token.entropy]
