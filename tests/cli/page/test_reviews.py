"""Reviews: what is written, who is its parent, and what curate makes of it."""

import subprocess

import polars as pl
import pytest

from posttrain.data.filters.base import FilterInputs
from posttrain.data.filters.reviewed import ReviewedFilter
from posttrain.data.reviews import add_review, read_reviews, review
from posttrain.operations.reviewing import reviews_of
from posttrain.provenance.lineage import queries
from posttrain.provenance.lineage.names import find_node
from posttrain.stage.errors import UserError
from tests.cli.page.conftest import problems

ADA, BOB = "Ada <ada@example.org>", "Bob <bob@example.org>"
THEN = "2026-11-28T18:40:00Z"


def said(subject, verdict, reviewer=ADA, reason="too easy"):
    return review(subject, "d0", verdict, reason, reviewer=reviewer, reviewed=THEN)


def test_what_is_written_in_the_page_is_a_table_made_by_its_reviewer(client, made):
    first, second, _ = problems()["id"]
    address = made.address("problems", "/row/{}/review").format
    here = {"origin": "http://127.0.0.1"}
    written = {"verdict": "reject", "reason": " too\n easy "}
    answer = client.post(address(0), data=written, headers=here, follow_redirects=False)
    # The next row is to be looked at.
    assert answer.headers["location"] == made.address("problems", "/row/1")
    client.post(address(1), data={"verdict": "accept"}, headers=here)
    path = reviews_of(made.root, "data/synthesize/problems.parquet")
    rows = read_reviews(path).select("subject", "verdict", "reason", "reviewer", "parents").rows()
    ada = "Ada Reviewer <ada@example.org>"
    assert rows == [
        (first, "reject", "too easy", ada, [first, f"reviewer:{ada}"]),
        (second, "accept", "", ada, [second, f"reviewer:{ada}"]),
    ]
    node = find_node(made.ledger, str(path), root=made.root, cwd=made.root)
    graph = queries.up(made.ledger, node)
    named = {each.name: each.type for each in graph.nodes.values() if each.kind == "artifact"}
    assert named[f"reviewer:{ada}"] == "reviewer"
    assert named["data/synthesize/problems.parquet"] == "problems"
    assert "rejected by Ada Reviewer" in client.get(
        made.address("problems", "/row/0")
    ).text.replace("</span>", "")
    assert "2 reviews: 1 accepted, 1 rejected" in client.get("/reviews").text
    refused = client.post(address(2), data={"verdict": "reject"}, headers=here)
    assert "say why the row is rejected" in refused.text
    assert read_reviews(path).height == 2


def test_nobody_reviews_where_git_knows_nobody(client, made, monkeypatch, tmp_path):
    for scope in ("GLOBAL", "SYSTEM"):
        monkeypatch.setenv(f"GIT_CONFIG_{scope}", "/dev/null")
    config = ["git", "-C", str(made.root), "config"]
    subprocess.run([*config, "--unset", "user.email"], check=True)
    try:
        address = made.address("rollouts", "/row/0/review")
        here = {"origin": "http://127.0.0.1"}
        answer = client.post(address, data={"verdict": "accept"}, headers=here)
        assert "git knows no user.name and user.email" in answer.text
    finally:
        subprocess.run([*config, "user.email", "ada@example.org"], check=True)


def test_the_last_word_of_a_reviewer_counts(tmp_path):
    path = tmp_path / "reviews" / "a.parquet"
    for row in (said("a", "reject"), said("a", "accept", BOB), said("a", "accept")):
        add_review(path, row)
    rows = read_reviews(path).select("reviewer", "verdict").rows()
    assert rows == [(BOB, "accept"), (ADA, "accept")]


def test_another_file_is_not_written_over(tmp_path):
    path = tmp_path / "a.parquet"
    pl.DataFrame({"x": [1]}).write_parquet(path)
    with pytest.raises(UserError, match="there is no column 'id'"):
        add_review(path, said("a", "reject"))
    assert pl.read_parquet(path).columns == ["x"]


def test_curate_drops_what_any_reviewer_rejected(tmp_path):
    path = tmp_path / "a.parquet"
    bad = said("a", "reject", BOB)
    for row in (said("a", "accept"), bad, said("b", "accept")):
        add_review(path, row)
    rows = pl.DataFrame({"id": ["c", "b", "a"]})
    taken = ReviewedFilter(path=str(path))
    assert taken.read_files() == (str(path),)
    assert taken.reasons(rows, FilterInputs()).rows() == [
        ("", ""),
        ("", ""),
        ("rejected", bad["id"]),
    ]
    strict = ReviewedFilter(path=str(path), unreviewed="drop")
    told = strict.reasons(rows, FilterInputs())["reason"].to_list()
    assert told == ["unreviewed", "", "rejected"]
