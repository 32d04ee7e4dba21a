"""Pairs of steps, by hand: values of a tree of samples, and which steps of a state are compared."""

import pytest

from posttrain.data.pair_builders.registry import PAIR_BUILDERS
from posttrain.data.pairs import build_pairs
from posttrain.data.schemas import Completion, Problem, completions_table

# Root: "a" is right in 3 of 4 samples (2 of one text), value 1/2; "b" in 0 of 1, value -1.
# Behind "a": "x" 2 of 2, value 1; "y" 1 of 1, value 1; "z" 0 of 1, value -1.
TREE = [("a\nx", 1.0), ("a\nx", 1.0), ("a\ny", 1.0), ("a\nz", 0.0), ("b\nx", 0.0)]


def built(samples, against, limit=9):
    rows = []
    for name in ("p", "q"):
        problem = Problem("sums", name, "1", 1, "exact")
        rows += [Completion(problem, text, "policy", each, each > 0, "") for text, each in samples]
    part = PAIR_BUILDERS.parse({"kind": "steps", "against": against})
    pairs = build_pairs(
        completions_table(rows),
        pairs_per_problem=limit,
        heldout_fraction=0.5,
        seed=0,
        builder=part,
    )
    columns = ("chosen", "rejected", "step_start", "chosen_score", "rejected_score")
    return sorted(pairs.filter(prompt="p").select(columns).rows())


def test_every_good_step_of_a_state_meets_every_bad_one():
    assert built(TREE, "signs") == [
        ("a\n", "b\n", 1, 0.5, -1.0),
        ("a\nx", "a\nz", 3, 1.0, -1.0),
        ("a\ny", "a\nz", 3, 1.0, -1.0),
    ]


def test_along_the_best_sample_the_best_step_meets_the_worst():
    # The first of equally good ones: x before y.
    assert built(TREE, "extremes") == [
        ("a\n", "b\n", 1, 0.5, -1.0),
        ("a\nx", "a\nz", 3, 1.0, -1.0),
    ]


def test_the_widest_pairs_go_first():
    assert built(TREE, "signs", limit=1) == [("a\nx", "a\nz", 3, 1.0, -1.0)]


@pytest.mark.parametrize("against", ["signs", "extremes"])
def test_where_all_steps_are_worth_the_same_there_is_no_pair(against):
    assert built([("a\nx", 1.0), ("b\ny", 1.0)], against) == []
