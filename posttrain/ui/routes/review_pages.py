"""Reviews: the one thing that is written here."""

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from posttrain.data.reviews import read_reviews
from posttrain.operations.reviewing import FOLDER_OF_REVIEWS, write_review
from posttrain.provenance.lineage.tables import collected
from posttrain.stage.errors import UserError
from posttrain.ui.render import project_shown, render_page

review_routes = APIRouter()

_SEE_OTHER = 303


@review_routes.post("/table/{digest}/row/{number}/review")
def write_row_review(
    request: Request,
    digest: str,
    number: int,
    verdict: Annotated[Literal["accept", "reject"], Form()],
    reason: Annotated[str, Form()] = "",
) -> Response:
    """Write a verdict on a row, and go to the next one."""
    project = project_shown(request)
    record, table = project.table(digest)
    rows = collected(table.rows().select("id").slice(number, 2), table)["id"].to_list()
    if not rows:
        raise UserError(f"{record.path} has no row {number}")
    at = f"/table/{record.digest[:16]}/row"
    try:
        with project.ledger() as ledger:
            write_review(project.root, ledger, record, rows[0], verdict, reason)
    except UserError as error:
        return RedirectResponse(f"{at}/{number}?problem={quote(str(error))}", _SEE_OTHER)
    following = number + 1 if len(rows) > 1 else number
    return RedirectResponse(f"{at}/{following}", _SEE_OTHER)


@review_routes.get("/reviews")
def show_reviews(request: Request) -> Response:
    """Show every table of reviews, and how curate takes it."""
    root = project_shown(request).root
    found = []
    for path in sorted((root / FOLDER_OF_REVIEWS).glob("*.parquet")):
        rows = read_reviews(path).sort("reviewed", descending=True)
        found.append({"path": path.relative_to(root).as_posix(), "rows": rows.to_dicts()})
    return render_page(request, "reviews.html", section="Data", tables=found)
