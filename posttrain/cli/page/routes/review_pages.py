"""Reviews: the one thing that is written here."""

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Form, Path, Request, Response
from fastapi.responses import RedirectResponse

from posttrain.cli.page.opened import asked_again, neighbors, open_listed, question_in, rows_asked
from posttrain.cli.page.render import project_shown, render_page
from posttrain.data.reviews import read_reviews
from posttrain.operations.reviewing import FOLDER_OF_REVIEWS, write_review
from posttrain.provenance.lineage.tables import collected
from posttrain.stage.errors import UserError

review_routes = APIRouter()

_SEE_OTHER = 303


@review_routes.post("/table/{digest}/row/{number}/review")
def write_row_review(
    request: Request,
    digest: str,
    number: Annotated[int, Path(ge=0)],
    verdict: Annotated[Literal["accept", "reject"], Form()],
    reason: Annotated[str, Form()] = "",
) -> Response:
    """Write a verdict on a row, and go to the next one."""
    project = project_shown(request)
    record, listed = open_listed(project, digest)
    asked = question_in(request)
    ids = collected(listed.table.rows().select("id").slice(number, 1), listed.table)["id"]
    if not len(ids):
        raise UserError(f"{record.path} has no row {number}")
    at, again = f"/table/{record.digest[:16]}/row", asked_again(asked)
    _, after = neighbors(rows_asked(listed, asked), number)
    try:
        with project.ledger() as ledger:
            write_review(project.root, ledger, record, ids[0], verdict, reason)
    except UserError as error:
        said = f"{'&' if again else '?'}problem={quote(str(error))}"
        return RedirectResponse(f"{at}/{number}{again}{said}", _SEE_OTHER)
    return RedirectResponse(f"{at}/{number if after is None else after}{again}", _SEE_OTHER)


@review_routes.get("/reviews")
def show_reviews(request: Request) -> Response:
    """Show every table of reviews, and how curate takes it."""
    root = project_shown(request).root
    found = []
    for path in sorted((root / FOLDER_OF_REVIEWS).glob("*.parquet")):
        rows = read_reviews(path).sort("reviewed", descending=True)
        found.append({"path": path.relative_to(root).as_posix(), "rows": rows.to_dicts()})
    return render_page(request, "reviews.html", section="Data", tables=found)
