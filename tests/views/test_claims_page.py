"""Claims as a page and a table: figures by hand, and what has no interval."""

import re

import pytest

from posttrain.views.report.claims import (
    HEADING,
    ClaimFigure,
    ClaimRow,
    claims_in_markdown,
    claims_page,
    legend_of_claims,
    tally_of_claims,
)

DECISION = {
    "metric": "pass_at_1",
    "is": "higher",
    "margin": 0.05,
    "better": "higher",
    "against": "plain",
    "ours": [0.6, 0.8],
    "theirs": [0.5, 0.5],
    "difference": 0.2,
    "low": 0.1,
    "high": 0.3,
    "outcome": "confirmed",
}


def row(**said):
    known = {"verdict": "confirmed", "seeds": 2, "minutes": 1.25, "commit": "c0ffee" * 6, **said}
    figures = (ClaimFigure.read(DECISION),)
    return ClaimRow(
        "pg", "mine", "better", "It is <b>better</b>.", "sums", figures=figures, **known
    )


def test_a_figure_has_means_over_seeds_and_says_what_was_asked():
    figure = ClaimFigure.read(DECISION)
    assert (figure.ours, figure.theirs) == (pytest.approx(0.7), 0.5)
    told = "pass_at_1 +0.2 [+0.1, +0.3] (0.7 against 0.5 of plain), higher by 0.05"
    assert figure.told == told


def test_the_picture_reaches_as_far_as_its_farthest_end():
    drawn = ClaimFigure.read(DECISION).drawn()
    # 0.3 of 0.3 is the right edge less 6 pixels; the others lie in proportion from the middle.
    assert (drawn["zero"], drawn["high"]) == (100, pytest.approx(194))
    assert drawn["low"] == pytest.approx(100 + 94 / 3)
    assert drawn["edges"] == [pytest.approx(100 + 94 / 6)]


@pytest.mark.parametrize(
    ("direction", "better", "edges"),
    [
        ("lower", "higher", [-0.05]),
        ("not_worse", "higher", [-0.05]),
        ("not_worse", "lower", [0.05]),
        ("equal", "higher", [-0.05, 0.05]),
    ],
)
def test_edges_lie_where_a_decision_asks(direction, better, edges):
    assert ClaimFigure.read({**DECISION, "is": direction, "better": better}).edges == edges


def test_a_number_stands_in_place_of_an_arm_and_one_seed_has_no_interval():
    limit = {**DECISION, "against": None, "theirs": [22.0], "low": None, "high": None}
    figure = ClaimFigure.read(limit)
    assert figure.rival == "than 22"
    assert figure.told == "pass_at_1 +0.2 (0.7), higher by 0.05 than 22"
    limited = ClaimRow("pg", "mine", "limit", "It is.", "sums", figures=(figure,))
    assert limited.against == "than 22"
    assert figure.drawn()["low"] == figure.drawn()["high"] == pytest.approx(194)


def test_the_table_has_a_line_for_each_claim_that_was_run():
    text = claims_in_markdown([row(), ClaimRow("pg", "mine", "later", "It will.", "sums")])
    figure = "pass_at_1 +0.2 [+0.1, +0.3] (0.7 against 0.5 of plain), higher by 0.05"
    line = f"| pg | mine | better | sums | plain | {figure} | confirmed | 2 | 1.2 |"
    assert text.splitlines()[2:] == [line]


def test_a_verdict_that_was_kept_without_figures_has_its_sentence():
    old = ClaimRow(
        "pg", "mine", "old", "It did.", "sums", verdict="void", sentence="void: base at 0.9",
        compared=("plain",), seeds=2, minutes=1.25, commit="c0ffee",
    )  # fmt: skip
    text = claims_in_markdown([old])
    assert text.splitlines()[2:] == [
        "| pg | mine | old | sums | plain | base at 0.9 | void | 2 | 1.2 |"
    ]


def test_a_claim_that_was_not_run_says_what_it_is_to_be_compared_with():
    later = ClaimRow("pg", "mine", "later", "It will.", "sums", compared=("plain", "base", "plain"))
    assert later.cells()[4:7] == ("plain, base", "", "not run")
    assert row(compared=("other",)).against == "plain"


def test_the_page_escapes_and_groups_by_family():
    page = claims_page(
        [row(stale=True), row(verdict="refuted")], {"pg": "gradients", "len": "short"}
    )
    assert "It is &lt;b&gt;better&lt;/b&gt;." in page
    assert 'id="pg"' in page
    assert 'id="len"' not in page
    assert "2 claims: 1 confirmed (0 still count), 1 refuted; 1 of them stale" in page


def test_what_was_decided_on_code_that_was_not_committed_says_so():
    assert row().cells()[6] == "confirmed"
    assert row(commit=None, stale=True).cells()[6] == "confirmed (stale) (not committed)"
    assert ClaimRow("pg", "mine", "later", "It will.", "sums").cells()[6] == "not run"
    assert "<code>c0ffeec0</code>" in claims_page([row()], {"pg": "gradients"})
    page = claims_page([row(commit=None, seeds=1)], {"pg": "gradients"})
    assert "· 1 seed ·" in page
    assert "· not committed" in page
    assert "<code></code>" not in page


def test_a_commit_that_history_has_not_is_not_shown_as_if_it_could_be_checked_out():
    lost = "c0ffee" * 6
    assert "not in this history" not in claims_page([row()], {"pg": "gradients"})
    page = claims_page([row(gone=(lost,), rechecked="f" * 36)], {"pg": "gradients"})
    assert "<code>c0ffeec0</code> (not in this history), first seed again at" in page
    assert "<code>ffffffff</code></span>" in page
    page = claims_page([row(gone=(lost,), rechecked=lost)], {"pg": "gradients"})
    assert "first seed again at <code>c0ffeec0</code> (not in this history)</span>" in page


def test_the_page_has_all_claims_in_one_table_too():
    page = claims_page([row(), row(verdict="refuted", stale=True)], {"pg": "gradients"})
    (table,) = re.findall(r'<table class="claims">.*?</table>', page, re.DOTALL)
    assert re.findall(r"<th>(.*?)</th>", table) == [*HEADING]
    assert re.findall(r'<td class="outcome">(.*?)</td>', table) == ["confirmed", "refuted (stale)"]


def test_the_legend_has_the_words_that_are_there_and_says_what_stale_is():
    told = legend_of_claims([row(stale=True), row(verdict="refuted")])
    assert [line.partition(":")[0] for line in told] == ["confirmed", "refuted", "stale"]
    assert "may be a tie" in told[1]
    assert "does not count" in told[2]
    assert legend_of_claims([ClaimRow("pg", "mine", "later", "It will.", "sums")]) == []


def test_a_count_leaves_out_what_there_is_none_of():
    assert tally_of_claims([row()]) == "1 claim: 1 confirmed"
