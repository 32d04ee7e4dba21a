"""The policy on nodes made by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.operations.maintenance.policy import (
    FITS,
    UNUSED,
    StoredItem,
    decide,
    parse_bytes,
    table,
)
from posttrain.stage.errors import UserError


def node(name, parts, used=0.0, *reasons):
    return StoredItem(name, "artifact", parts, used, reasons)


def test_without_a_budget_all_that_has_no_reason_goes():
    decision = decide([node("a", {"x": 5}, 1), node("b", {"y": 7}, 2, "pinned")])
    assert [n.name for n in decision.removed] == ["a"]
    assert (decision.pieces, decision.freed, decision.left) == ({"x"}, 5, 7)
    assert [(n.name, why) for n, why in decision.kept] == [("b", "pinned")]


def test_a_shared_piece_stays_for_as_long_as_one_of_its_nodes():
    first = node("a", {"x": 5, "both": 100}, 1)
    second = node("b", {"y": 7, "both": 100}, 2, "pinned")
    decision = decide([first, second])
    assert (decision.pieces, decision.freed, decision.left) == ({"x"}, 5, 107)
    assert decide([first, node("b", {"y": 7, "both": 100})]).freed == 112


def test_under_a_budget_the_longest_unused_go_first_and_no_more_than_needed():
    nodes = [node("new", {"x": 10}, 3), node("old", {"y": 10}, 1), node("mid", {"z": 10}, 2)]
    decision = decide(nodes, budget=25)
    assert [n.name for n in decision.removed] == ["old"]
    assert {why for _, why in decision.kept} == {FITS}
    assert decide(nodes, budget=30).removed == ()
    assert [n.name for n in decide(nodes, budget=0).removed] == ["old", "mid", "new"]


def test_a_budget_that_cannot_be_met_removes_nothing_that_is_needed():
    decision = decide([node("a", {"x": 10}, 1, "release r@v1"), node("b", {"y": 1})], budget=5)
    assert (decision.freed, decision.left) == (1, 10)


def test_the_table_counts_every_byte_once():
    nodes = [
        node("a", {"x": 5, "both": 100}, 1),
        node("b", {"both": 100}, 2, "pinned"),
        node("c", {"both": 100, "z": 1}, 2, "last"),
    ]
    lines = [(line.goes, line.reason, line.count, line.size) for line in table(decide(nodes))]
    assert lines == [(False, "last", 1, 1), (False, "pinned", 1, 100), (True, UNUSED, 1, 5)]


@given(
    st.lists(
        st.tuples(st.sets(st.sampled_from("abcdef"), min_size=1), st.integers(0, 9), st.booleans()),
        max_size=8,
    ),
    st.one_of(st.none(), st.integers(0, 40)),
)
def test_whatever_the_nodes_nothing_needed_goes_and_the_sums_agree(rows, budget):
    size = {letter: 1 + index for index, letter in enumerate("abcdef")}
    nodes = [
        node(str(i), {p: size[p] for p in parts}, used, *(["needed"] if kept else []))
        for i, (parts, used, kept) in enumerate(rows)
    ]
    decision = decide(nodes, budget)
    needed = {p for n in nodes if n.reasons for p in n.parts}
    assert not decision.pieces & needed
    everything = {p for n in nodes for p in n.parts}
    assert decision.freed + decision.left == sum(size[p] for p in everything)
    lines = table(decision)
    assert sum(line.size for line in lines if line.goes) == decision.freed
    assert sum(line.size for line in lines if not line.goes) == decision.left
    if budget is not None and decision.left > budget:
        assert everything - decision.pieces == needed
    # A node that stays is whole.
    assert all(not decision.pieces & n.parts.keys() for n, _ in decision.kept)


@pytest.mark.parametrize(
    ("text", "size"),
    [("50GB", 50 * 10**9), ("1.5 TB", 15 * 10**11), ("2MiB", 2 << 20), ("7", 7), ("3k", 3000)],
)
def test_amounts_of_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "many", "1 XB"])
def test_other_text_is_refused(text):
    with pytest.raises(UserError, match="is no amount of bytes"):
        parse_bytes(text)
