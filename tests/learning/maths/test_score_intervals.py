"""Intervals of benchmarks' scores, against values worked out by hand."""

import pytest
from scipy.stats import t as student

from posttrain.learning.maths.score_intervals import score_interval


def test_one_score_of_0_or_1_for_each_document_has_wilsons_interval():
    # n = 4, s = 1, z = 1.959964: (1 + z^2/2 -+ z sqrt(1 * 3 / 4 + z^2/4)) / (4 + z^2).
    assert score_interval([1.0, 0.0, 0.0, 0.0], [0, 1, 2, 3], mean=0.25) == pytest.approx(
        (0.045587, 0.699358), abs=1e-6
    )
    low, high = score_interval([0.0, 0.0], [0, 1], mean=0.0)
    assert (low, high) == (0.0, pytest.approx(0.657620, abs=1e-6))


def test_scores_of_one_document_go_together():
    # Means 1 and 0 of two documents: the error of their mean is 0.5, with one degree of freedom.
    reach = 0.5 * student.ppf(0.975, 1)
    assert score_interval([1.0, 1.0, 0.0, 0.0], [0, 0, 1, 1], mean=0.5) == pytest.approx(
        (0.5 - reach, 0.5 + reach)
    )


def test_what_is_no_mean_or_of_one_document_has_none():
    assert score_interval([1.0, 0.0], [0, 1], mean=0.7) is None
    assert score_interval([2.0, 3.0], [0, 0], mean=2.5) is None
    assert score_interval([], [], mean=0.0) is None
