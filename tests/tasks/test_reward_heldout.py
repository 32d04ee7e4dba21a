import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.reward.heldout import auroc


def area(scores, positive):
    return auroc(pl.Series(scores), pl.Series(positive, dtype=pl.Boolean))


def test_auroc_by_hand():
    # Positives .2 .9 .8, negatives .1 .8: wins 1, 2, 1 and one tie: 4.5 of 6.
    scores, positive = [0.1, 0.2, 0.9, 0.8, 0.8], [False, True, True, True, False]
    assert area(scores, positive) == pytest.approx(0.75)
    assert area([math.log(score) for score in scores], positive) == pytest.approx(0.75)
    assert area([0.0] * 4, [True, False, True, False]) == 0.5


def test_one_class_alone_has_no_area():
    assert math.isnan(area([0.1, 0.2], [True, True]))
    assert math.isnan(area([0.1, 0.2], [False, False]))


def test_a_score_that_is_no_number_leaves_no_area():
    assert math.isnan(area([0.1, math.nan], [False, True]))
    assert math.isnan(area([math.nan, 0.2, 0.3], [False, True, False]))
    assert area([-math.inf, math.inf], [False, True]) == 1.0


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=12))
def test_auroc_equals_comparing_every_pair(rows):
    positive = [score for score, outcome in rows if outcome]
    negative = [score for score, outcome in rows if not outcome]
    if not positive or not negative:
        return
    wins = sum((p > n) + 0.5 * (p == n) for p in positive for n in negative)
    got = area([score for score, _ in rows], [outcome for _, outcome in rows])
    # Halves add up exactly, so that no other way to count may move a report's last digit.
    assert got == wins / (len(positive) * len(negative))
