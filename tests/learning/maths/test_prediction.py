"""Student's t from its finite sums, and the intervals that a few values give."""

import math

import pytest
import torch

from posttrain.learning.maths.prediction import (
    mean_interval,
    prediction_interval,
    student_coverage,
    student_quantile,
    values_needed,
)


def test_one_degree_of_freedom_is_cauchy_and_two_have_a_closed_form():
    # Cauchy: P(-1 < T < 1) = 2/pi atan(1) = 1/2; two degrees: t / sqrt(2 + t^2).
    assert student_coverage(1.0, 1) == pytest.approx(0.5)
    assert student_coverage(2.0, 2) == pytest.approx(2 / math.sqrt(6))


# From the printed tables of Student's t: two-sided 95% and 99%.
@pytest.mark.parametrize(
    ("degrees", "at_95", "at_99"),
    [(1, 12.7062, 63.6567), (2, 4.3027, 9.9248), (4, 2.7764, 4.6041), (29, 2.0452, 2.7564)],
)
def test_quantiles_are_those_of_the_tables(degrees, at_95, at_99):
    assert student_quantile(0.95, degrees) == pytest.approx(at_95, abs=1e-4)
    assert student_quantile(0.99, degrees) == pytest.approx(at_99, abs=1e-4)


def test_many_degrees_come_to_the_normal_distribution():
    assert student_quantile(0.95, 100_000) == pytest.approx(1.959964, abs=1e-4)


def test_one_more_value_lies_further_off_than_the_mean_does():
    # 1, 2, 3: mean 2, s = 1; t(2) = 4.3027; one more: t sqrt(4/3); the mean: t sqrt(1/3).
    values = torch.tensor([1.0, 2.0, 3.0])
    one, mean = prediction_interval(values), mean_interval(values)
    assert float(one.estimate) == float(mean.estimate) == 2.0
    assert float(one.high) == pytest.approx(2 + 4.302653 * math.sqrt(4 / 3), abs=1e-5)
    assert float(mean.low) == pytest.approx(2 - 4.302653 * math.sqrt(1 / 3), abs=1e-5)


def test_equal_values_give_an_interval_of_no_width():
    interval = prediction_interval(torch.full((3,), 0.1))
    assert float(interval.low) == float(interval.high) == float(interval.estimate)


def test_what_is_needed_is_the_first_that_suffices():
    # s = 1, reach 1.5: two give 12.71 / 1.41 = 8.98, three 2.48, four 3.18 / 2 = 1.59, five 1.24.
    assert values_needed(1.0, 1.5) == 5
    assert values_needed(0.0, 0.01) == 2


def test_one_value_and_no_reach_are_refused():
    with pytest.raises(ValueError, match="two values"):
        mean_interval(torch.tensor([1.0]))
    with pytest.raises(ValueError, match="above 0"):
        values_needed(1.0, 0.0)


def test_coverage_holds_for_draws_of_a_normal_distribution():
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(2000, 5, dtype=torch.float64, generator=generator)
    inside = 0
    for row in draws:
        interval = prediction_interval(row[:4])
        inside += bool(interval.low <= row[4] <= interval.high)
    # 95% of 2000, with a standard error of 0.5%.
    assert inside / 2000 == pytest.approx(0.95, abs=0.015)
