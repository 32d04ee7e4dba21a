"""Claims are decided by intervals of paired differences; expected values are worked out by hand."""

import math

import pytest
import torch

from posttrain.learning.maths.decision import (
    bootstrap_interval,
    conjunction,
    decided,
    paired_interval,
    seeds_enough,
)

# Mean 0.1, sample deviation 0.02, so that the interval of five is 0.1 +- t(4) 0.02 / sqrt(5), and
# t(4) is 2.776445 in every table: 0.0248333.
FIVE = torch.tensor([0.08, 0.12, 0.1, 0.08, 0.12], dtype=torch.float64)


def test_the_interval_is_students():
    interval = paired_interval(FIVE)
    reach = 2.7764451 * 0.02 / 5**0.5
    assert float(interval.estimate) == pytest.approx(0.1)
    assert float(interval.low) == pytest.approx(0.1 - reach, abs=1e-8)
    assert float(interval.high) == pytest.approx(0.1 + reach, abs=1e-8)


def test_a_single_seed_shows_nothing_and_none_is_refused():
    assert float(paired_interval(torch.tensor([0.5])).low) == -math.inf
    with pytest.raises(ValueError, match="at least one"):
        paired_interval(torch.tensor([]))


@pytest.mark.parametrize(
    ("direction", "margin", "better", "outcome"),
    [
        # The interval is 0.0752 to 0.1248.
        ("higher", 0.07, "higher", "confirmed"),
        ("higher", 0.1, "higher", "undecided"),
        ("higher", 0.13, "higher", "refuted"),
        ("lower", 0.0, "higher", "refuted"),
        ("not_worse", 0.01, "higher", "confirmed"),
        ("not_worse", 0.07, "lower", "refuted"),
        ("not_worse", 0.13, "lower", "confirmed"),
        ("not_worse", 0.1, "lower", "undecided"),
        ("equal", 0.13, "higher", "confirmed"),
        ("equal", 0.07, "higher", "refuted"),
        ("equal", 0.1, "higher", "undecided"),
    ],
)
def test_each_direction_has_three_outcomes(direction, margin, better, outcome):
    assert decided(FIVE, direction=direction, margin=margin, better=better) == outcome


def test_directions_mirror_each_other():
    for margin in (0.0, 0.07, 0.1, 0.13):
        assert decided(FIVE, direction="higher", margin=margin) == decided(
            -FIVE, direction="lower", margin=margin
        )
        assert decided(FIVE, direction="equal", margin=margin + 0.01) == decided(
            -FIVE, direction="equal", margin=margin + 0.01
        )


def test_equal_takes_two_tests_at_five_percent_each():
    # t(4) at 90% is 2.131847: the inner interval ends at 0.1190678, the outer one at 0.1248333.
    assert decided(FIVE, direction="equal", margin=0.1195) == "confirmed"
    assert decided(FIVE, direction="equal", margin=0.1185) == "undecided"


def test_a_conjunction_is_confirmed_if_all_are_and_refuted_if_one_is():
    assert conjunction(["confirmed", "confirmed"]) == "confirmed"
    assert conjunction(["confirmed", "undecided", "refuted"]) == "refuted"
    assert conjunction(["confirmed", "undecided"]) == "undecided"
    assert conjunction(["refuted", "void"]) == "void"


def test_enough_seeds_are_the_fewest_whose_interval_ends_before_the_threshold():
    enough = seeds_enough(FIVE, threshold=0.09)
    # The mean is 0.01 away, half a deviation: t(17) 0.02 / sqrt(18) is 0.0099458, t(16) 0.02 /
    # sqrt(17) is 0.0102831.
    assert enough == 18
    assert seeds_enough(FIVE, threshold=float(FIVE.mean())) == math.inf
    assert seeds_enough(torch.tensor([0.1, 0.1]), threshold=0.0) == 2


def test_the_bootstrap_holds_the_mean_and_narrows_with_more_problems():
    values_P = torch.tensor([0.0, 1.0] * 50, dtype=torch.float64)
    interval = bootstrap_interval(values_P, seed=1)
    # The normal interval of 100 fair coins is 0.5 +- 0.098.
    assert float(interval.low) == pytest.approx(0.402, abs=0.02)
    assert float(interval.high) == pytest.approx(0.598, abs=0.02)
    again = bootstrap_interval(values_P, seed=1)
    assert (again.low, again.high) == (interval.low, interval.high)
    more = bootstrap_interval(values_P.repeat(16), seed=1)
    assert float(more.high - more.low) < float(interval.high - interval.low) / 3
