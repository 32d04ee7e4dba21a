"""Reviews of rows: written beside the recipe, known to the ledger with who made them."""

import time
from pathlib import Path, PurePosixPath

import polars as pl
from filelock import FileLock

from posttrain.data.reviews import (
    REVIEWS_KIND,
    Verdict,
    add_review,
    read_reviews,
    review,
    reviewer_id,
)
from posttrain.provenance.actor import ACTOR, actor_at
from posttrain.provenance.ledger import ArtifactRecord, Composition, Ledger
from posttrain.provenance.ledger.location import STATE_DIR
from posttrain.stage.errors import UserError
from posttrain.stage.hashing import ArtifactDigest, digest_path, sha256_of

FOLDER_OF_REVIEWS = "reviews"


def reviewer_at(root: Path) -> str:
    """Name the person at the keyboard, see `actor_at`.

    Args:
        root: The project.

    Returns:
        `Name <address>`, or what POSTTRAIN_ACTOR says.

    Raises:
        UserError: Nobody said who it is.

    """
    if (actor := actor_at(root)) is None:
        raise UserError(
            "git knows no user.name and user.email, and a review is of somebody; set both with:"
            f" git config user.name, or set {ACTOR}"
        )
    return actor


def reviews_of(root: Path, table: str) -> Path:
    """Choose where the reviews of a table lie.

    >>> reviews_of(Path("/mine"), "data/synthesize/problems.parquet").as_posix()
    '/mine/reviews/synthesize-problems.parquet'

    Args:
        root: The project.
        table: Path of the table, as recorded.

    Returns:
        A file in the folder of reviews, whether it is there or not.

    """
    parts = [part for part in PurePosixPath(table).with_suffix("").parts if part not in ("..", "/")]
    named = "-".join(parts[1:] if parts[:1] == ["data"] and len(parts) > 1 else parts)
    return root / FOLDER_OF_REVIEWS / f"{named}.parquet"


def reviews_on(root: Path, table: str, subject: str) -> list[dict[str, str]]:
    """Read what was said of one row.

    Args:
        root: The project.
        table: Path of its table.
        subject: Its id.

    Returns:
        Rows of `REVIEWS`, the newest last.

    """
    path = reviews_of(root, table)
    if not path.exists():
        return []
    return read_reviews(path).filter(pl.col("subject") == subject).sort("reviewed").to_dicts()


def write_review(
    root: Path, ledger: Ledger, table: ArtifactRecord, subject: str, verdict: Verdict, reason: str
) -> Path:
    """Write what the person at the keyboard says of a row, and tell the ledger.

    Args:
        root: The project.
        ledger: Told that the reviews were made of the table and by the reviewer.
        table: With the row.
        subject: The row's id.
        verdict: Whether it stays.
        reason: Why.

    Returns:
        The table of reviews.

    Raises:
        UserError: git knows nobody, or a row is rejected without a reason.

    """
    reviewer = reviewer_at(root)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    row = review(subject, table.digest, verdict, reason, reviewer=reviewer, reviewed=now)
    path = reviews_of(root, table.path)
    with FileLock(root / STATE_DIR / "reviews.lock"):
        count = add_review(path, row).height
        digest = digest_path(path).sha256
        size = path.stat().st_size
    place = path.relative_to(root).as_posix()
    made = ArtifactRecord("reviews", str(REVIEWS_KIND), place, digest, size, rows=count)
    # A recipe names the file, and a stage that reads it knows it as one from outside.
    read = ArtifactRecord("reads", "source", place, digest, size, rows=count)
    parts = (_person(reviewer), table)
    ledger.compositions.add(Composition(made, parts), Composition(read, (made,)))
    return path


def _person(reviewer: str) -> ArtifactRecord:
    digest = ArtifactDigest(sha256_of(reviewer_id(reviewer)))
    return ArtifactRecord("reviewer", "reviewer", reviewer_id(reviewer), digest, 0)
