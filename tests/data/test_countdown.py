"""Countdown's solutions: every way, right ones told apart, and rare ones rarer."""

import random
from collections import Counter

import pytest

from posttrain.data.teachers.countdown import solve_countdown
from posttrain.data.teachers.notes import Notes


def solved(seed, numbers, target, error_rate=0.0, expression="unused"):
    notes = Notes(random.Random(seed), error_rate)
    metadata = {"numbers": numbers, "target": target, "expression": expression}
    return notes.text(solve_countdown(metadata, notes))


def test_every_way_to_a_target_is_written_and_no_other():
    # 5 with 2, 1, 4: (2 - 1) + 4, (2 + 4) - 1, (4 - 1) + 2, and 2 + 4 = 6 then 6 - 1 is the second;
    # 4 / 2 = 2 leads to 3, 1 and 2 alone; 1 * 4 = 4 and 2 * 1 = 2 to 6, 2 and 8.
    expressions = {solved(seed, [2, 1, 4], 5).splitlines()[-1] for seed in range(60)}
    assert expressions == {"#### 4 + (2 - 1)", "#### (2 + 4) - 1", "#### 2 + (4 - 1)"}


def test_a_line_joins_two_numbers():
    texts = {solved(seed, [2, 1, 4], 5) for seed in range(60)}
    assert "2 + 4 = 6\n6 - 1 = 5\n#### (2 + 4) - 1" in texts


def test_a_way_with_a_product_is_drawn_a_quarter_as_often():
    # 4 with 2, 2: 2 + 2 and 2 * 2, of weights 1 and 1/4.
    drawn = Counter(solved(seed, [2, 2], 4).splitlines()[-1] for seed in range(2000))
    assert drawn.keys() == {"#### 2 + 2", "#### 2 * 2"}
    assert drawn["#### 2 * 2"] / 2000 == pytest.approx(0.2, abs=0.04)


def test_a_slip_leads_elsewhere():
    texts = [solved(seed, [2, 1, 4], 5, error_rate=1.0) for seed in range(20)]
    assert all(eval(text.splitlines()[-1].removeprefix("####")) != 5 for text in texts)


def test_of_many_numbers_there_is_the_generators_own_expression():
    assert (
        solved(0, [1, 2, 3, 4, 5], 15, expression="1 + 2 + 3 + 4 + 5") == "#### 1 + 2 + 3 + 4 + 5"
    )


def test_where_no_way_leads_nothing_is_written():
    with pytest.raises(ValueError, match=r"no way to 100 with"):
        solved(0, [1, 2, 3], 100)
