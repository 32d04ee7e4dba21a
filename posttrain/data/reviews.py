"""Reviews: what a person said of rows of a table, as a table of its own."""

from pathlib import Path
from typing import Any, Literal

import polars as pl

from posttrain.data.schemas import row_id
from posttrain.data.tables import read_table, write_table
from posttrain.stage.artifact_kinds import ArtifactKind
from posttrain.stage.errors import UserError

Verdict = Literal["accept", "reject"]

_ROW: dict[str, Any] = {"id": pl.String, "parents": pl.List(pl.String)}

REVIEWS = pl.Schema(
    {
        **_ROW,
        "subject": pl.String,  # id of the row
        "table": pl.String,  # digest of the table in which it was looked at
        "verdict": pl.String,  # accept or reject
        "reason": pl.String,  # in the reviewer's words; may be empty where it is accepted
        "reviewer": pl.String,  # as git knows the person: Name <address>
        "reviewed": pl.String,  # when, in UTC: 2026-11-28T18:40:00Z
    }
)
"""The columns of a table of reviews; of each row and reviewer the last verdict.

`parents` are the row that was looked at, and who reviewed it.
"""


def review_schema() -> pl.Schema:
    """Return `REVIEWS`, for the kind of the artifact."""
    return REVIEWS


REVIEWS_KIND = ArtifactKind("reviews", suffix=".parquet", shape="table", schema=review_schema)
"""Kind of the artifact that holds reviews."""


def reviewer_id(reviewer: str) -> str:
    """Name a reviewer as a parent of rows.

    >>> reviewer_id("Ada <ada@example.org>")
    'reviewer:Ada <ada@example.org>'

    Args:
        reviewer: As git knows the person.

    Returns:
        An id that no row has.

    """
    return f"reviewer:{reviewer}"


def review(  # noqa: PLR0913 - each is one column
    subject: str, table: str, verdict: Verdict, reason: str, *, reviewer: str, reviewed: str
) -> dict[str, Any]:
    """Make a row of `REVIEWS`.

    Args:
        subject: Id of the row that was looked at.
        table: Digest of its table.
        verdict: Whether it stays.
        reason: Why; asked for where it is rejected.
        reviewer: As git knows the person.
        reviewed: When, in UTC.

    Returns:
        The row.

    Raises:
        UserError: It is rejected without a reason.

    """
    said = " ".join(reason.split())
    if verdict == "reject" and not said:
        raise UserError("say why the row is rejected: curate's table of dropped rows leads to it")
    return {
        "id": row_id(subject, reviewer, verdict, said),
        "parents": [subject, reviewer_id(reviewer)],
        "subject": subject,
        "table": table,
        "verdict": verdict,
        "reason": said,
        "reviewer": reviewer,
        "reviewed": reviewed,
    }


def read_reviews(path: Path) -> pl.DataFrame:
    """Read a table of reviews.

    Args:
        path: A parquet file.

    Returns:
        Its rows, in the order in which they were written.

    Raises:
        UserError: It is missing, or is no table of reviews.

    """
    return read_table(path, REVIEWS)


def add_review(path: Path, row: dict[str, Any]) -> pl.DataFrame:
    """Write a review into a table; what the reviewer said of that row before gives way.

    Args:
        path: The table; made where it is not there.
        row: As `review` makes it.

    Returns:
        The table as it is now.

    Raises:
        UserError: What lies there is no table of reviews.

    """
    before = read_reviews(path) if path.exists() else pl.DataFrame(schema=REVIEWS)
    same = (pl.col("subject") == row["subject"]) & (pl.col("reviewer") == row["reviewer"])
    now = pl.concat([before.filter(~same), pl.DataFrame([row], schema=REVIEWS)])
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(now, path, REVIEWS)
    return now
