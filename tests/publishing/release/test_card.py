"""The card quotes what people and models wrote, and its tables are those of the figures."""

import pytest

from posttrain.publishing.release.card import (
    Verbatim,
    as_code,
    card_findings,
    gate_rows,
    in_markdown,
    metric_rows,
)

METRICS = {
    name: {"value": value, "low": 0.5, "high": 0.9, "problems": 20.0, "seeds": 2.0}
    for name, value in (("pass_at_16", 0.8), ("pass_at_1", 0.7))
}
GATES = [{"gate": {"name": "a|b"}, "rule": "x <= 1", "figures": {"value": 0.25, "low": 0.125}}]
CARD = "\n".join(
    [
        "| metric | value | 95% interval over problems | problems | seeds |",
        "|---|---|---|---|---|",
        *metric_rows(METRICS),
        "",
        "| gate | passed because | figures |",
        "|---|---|---|",
        *gate_rows(GATES),
        "",
        "## Made by",
    ]
)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("two\nlines\n# big", "two lines \\# big"),
        ("![x](http://y)", "\\!\\[x\\](http\\://y)"),
        ("<script>`|\\", "\\<script\\>\\`\\|\\\\"),
        ("\x1b[2Kred\u202e", "\\[2Kred"),
        (Verbatim("| a |"), "| a |"),
    ],
)
def test_a_quoted_name_is_one_line_without_a_meaning_of_its_own(text, quoted):
    assert in_markdown(text) == quoted


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("12", "`12`"),
        ("", "`  `"),
        ("a `b` ``c", "``` a `b` ``c ```"),
        ("x | y\n| z", "`x \\u007c y\\n\\u007c z`"),
        ("\x1b[2K", "`\\u001b[2K`"),
        ('"no"', '`"no"`'),
    ],
)
def test_a_completion_stays_inside_its_backticks(text, quoted):
    assert as_code(text) == quoted


def test_the_tables_have_the_figures_in_order():
    assert metric_rows(METRICS)[0] == "| pass_at_1 | 0.7000 | 0.5000 to 0.9000 | 20 | 2 |"
    assert gate_rows(GATES) == ["| a\\|b | x \\<= 1 | low 0.125, value 0.25 |"]


def test_a_card_that_says_other_figures_is_found():
    facts = {"evaluation": METRICS, "gates": GATES}
    assert list(card_findings(CARD, facts, gates=True)) == []
    for old, new, what in (
        ("0.7000", "0.9900", "figures"),
        ("| pass_at_16 |", "| pass_at_8 |", "figures"),
        ("low 0.125", "low 0.625", "gates"),
        ("| gate |", "| goat |", "gates"),
    ):
        (finding,) = card_findings(CARD.replace(old, new), facts, gates=True)
        assert f"table of {what}" in finding
    # Rows that are too many.
    for head in ("| gate |", "## Made"):
        extra = CARD.replace(f"\n\n{head}", f"\n| pass_at_32 | 1 |\n\n{head}")
        assert len(list(card_findings(extra, facts, gates=True))) >= 1
    assert list(card_findings(CARD.replace("low 0.125", "low 1"), facts, gates=False)) == []
