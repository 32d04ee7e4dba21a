import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.data.schemas import Problem
from posttrain.learning.rewards.verifiers.edit_distance import EditDistanceVerifier, edit_distance


def table(one, other):
    """Levenshtein's table, row by row: the plain definition."""
    row = list(range(len(other) + 1))
    for i, x in enumerate(one, start=1):
        above, row = row, [i]
        for j, y in enumerate(other, start=1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y)))
    return row[-1]


@given(st.text("ab", max_size=70), st.text("abc", max_size=70))
def test_it_is_levenshteins_distance(one, other):
    assert edit_distance(one, other) == table(one, other)


def score(answer, right, **fields):
    problem = Problem("typing", "Copy.", right, 1, "edit_distance")
    return EditDistanceVerifier(answer="whole", **fields).score(answer, problem)


@pytest.mark.parametrize(
    ("answer", "right", "fields", "value"),
    [
        # Two replacements and one insertion over seven characters.
        ("kitten", "sitting", {}, 1 - 3 / 7),
        ("a  b\nc", "a b c", {}, 1.0),
        ("a b d", "a b c", {"unit": "word"}, 2 / 3),
        ("xyz", "abc", {}, 0.0),
        ("kitten", "sitting", {"accept": 0.5}, 1.0),
    ],
)
def test_by_hand(answer, right, fields, value):
    assert score(answer, right, **fields).value == pytest.approx(value)


def test_long_texts_take_no_time():
    begun = time.perf_counter()
    assert edit_distance("ab" * 5000, "ba" * 5000) == 2
    assert time.perf_counter() - begun < 5
