"""The intervals that a few seeds give."""

import math
import random

import pytest

from posttrain.publishing.reproduction.seeds import seeds_needed, spread_of


def spread(*values, recorded=2.0, within=1.0):
    return spread_of("accuracy", recorded, dict(enumerate(values)), within)


def test_one_more_value_lies_further_off_than_the_mean_does():
    # 1, 2, 3: mean 2, s = 1; t(2) = 4.3027; one more: t sqrt(4/3); the mean: t sqrt(1/3).
    found = spread(1.0, 2.0, 3.0)
    assert found.mean == 2.0
    assert found.high == pytest.approx(2 + 4.302653 * math.sqrt(4 / 3), abs=1e-5)
    assert found.low == pytest.approx(2 - 4.302653 * math.sqrt(4 / 3), abs=1e-5)
    assert found.mean_low == pytest.approx(2 - 4.302653 * math.sqrt(1 / 3), abs=1e-5)
    assert found.mean_high == pytest.approx(2 + 4.302653 * math.sqrt(1 / 3), abs=1e-5)


def test_equal_values_give_intervals_of_no_width():
    found = spread(0.1, 0.1, 0.1, recorded=0.1)
    assert found.low == found.high == found.mean_low == found.mean_high == found.mean == 0.1
    assert found.holds
    assert not spread(0.1, 0.1, 0.1, recorded=0.2).holds


def test_what_is_needed_is_the_first_that_suffices():
    # s = 1, reach 1.5: two give 12.71 / 1.41 = 8.98, three 2.48, four 3.18 / 2 = 1.59, five 1.24.
    assert seeds_needed(1.0, 1.5) == 5
    assert seeds_needed(0.0, 0.01) == 2


def test_one_value_and_no_reach_are_refused():
    with pytest.raises(ValueError, match="two values"):
        spread(1.0)
    with pytest.raises(ValueError, match="above 0"):
        seeds_needed(1.0, 0.0)


@pytest.mark.slow
def test_the_interval_holds_one_more_draw_of_a_normal_distribution_as_often_as_it_says():
    chance = random.Random(0)
    inside = 0
    for _ in range(2000):
        *values, other = (chance.gauss() for _ in range(5))
        inside += spread(*values, recorded=other).inside
    # 95% of 2000, with a standard error of 0.5%.
    assert inside / 2000 == pytest.approx(0.95, abs=0.015)
