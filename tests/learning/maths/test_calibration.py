import pytest
import torch

from posttrain.learning.maths.calibration import (
    brier_score,
    expected_calibration_error,
    reliability_table,
)

PROBABILITY = torch.tensor([0.1, 0.2, 0.9, 0.8, 0.8])
OUTCOME = torch.tensor([0, 1, 1, 1, 0])


def test_brier_by_hand():
    # Squares .01 .64 .01 .04 .64 add up to 1.34, over 5.
    assert brier_score(PROBABILITY, OUTCOME).item() == pytest.approx(0.268)


def test_calibration_error_by_hand():
    # Two bins: {.1, .2} claims .15 and has 1/2; {.9, .8, .8} claims 2.5/3 and has 2/3.
    # 2/5 x .35 + 3/5 x .166667 = .24
    error = expected_calibration_error(PROBABILITY, OUTCOME, num_bins=2)
    assert error.item() == pytest.approx(0.24)
    count, claimed, happened = reliability_table(PROBABILITY, OUTCOME, num_bins=2)
    assert count.tolist() == [2, 3]
    assert claimed.tolist() == pytest.approx([0.15, 2.5 / 3])
    assert happened.tolist() == pytest.approx([0.5, 2 / 3])


def test_bins_hold_their_upper_edge_and_nothing_is_lost():
    edges = torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])
    count, claimed, happened = reliability_table(edges, torch.ones(5), num_bins=4)
    assert count.tolist() == [2, 1, 1, 1]
    assert claimed.tolist() == [0.125, 0.5, 0.75, 1.0]
    empty = reliability_table(edges[:1], torch.ones(1), num_bins=4)
    assert empty[2].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert happened.tolist() == [1.0] * 4


def test_perfect_and_constant_predictions():
    perfect = torch.tensor([0.0, 1.0, 1.0])
    assert expected_calibration_error(perfect, perfect) == 0.0
    assert brier_score(perfect, perfect) == 0.0
    half = torch.full((4,), 0.5)
    assert expected_calibration_error(half, torch.tensor([1, 0, 1, 0])) == 0.0
    assert brier_score(half, torch.tensor([1, 0, 1, 0])) == 0.25
