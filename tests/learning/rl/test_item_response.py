"""The response of a problem to hints: by hand, and by what it must do."""

import math

import pytest

from posttrain.learning.rl.hints.item_response import ResponseCurve, fit_response


def test_the_chance_is_the_logistic_above_a_floor():
    curve = ResponseCurve(slope=4.0, middle=0.5, guess=0.2)
    # Halfway between the floor and 1 at the middle; 0.2 + 0.8 / (1 + e) a quarter before it.
    assert curve.chance(0.5) == pytest.approx(0.6)
    assert curve.chance(0.25) == pytest.approx(0.2 + 0.8 / (1 + math.e))


@pytest.mark.parametrize("chance", [0.3, 0.5, 0.9])
def test_the_share_for_a_chance_gives_that_chance(chance):
    curve = ResponseCurve(slope=8.0, middle=0.5, guess=0.2)
    assert curve.chance(curve.share_for(chance)) == pytest.approx(chance)


def test_a_share_stays_between_nothing_and_the_most():
    assert ResponseCurve(8.0, 0.5, guess=0.3).share_for(0.3) == 0.0
    assert ResponseCurve(8.0, -0.5, guess=0.0).share_for(0.5) == 0.0
    assert ResponseCurve(8.0, 1.5, guess=0.0).share_for(0.5, most=0.75) == 0.75


def test_without_attempts_it_is_what_is_taken_for_granted():
    assert fit_response([], []) == ResponseCurve(slope=8.0, middle=0.5, guess=0.0)


def test_attempts_of_a_known_curve_are_fitted_by_it():
    true = ResponseCurve(slope=16.0, middle=0.7, guess=0.0)
    shares, solved = [], []
    for share in (0.5, 0.6, 0.7, 0.8, 0.9):
        right = round(200 * true.chance(share))
        shares += [share] * 200
        solved += [True] * right + [False] * (200 - right)
    assert fit_response(shares, solved) == true


def test_a_failure_asks_for_more_and_a_success_for_less():
    def asked(solved):
        return fit_response([0.5] * len(solved), solved).share_for(0.5)

    assert asked([True, True]) < asked([True, False]) == 0.5 < asked([False, False])
    assert asked([False] * 8) > asked([False] * 2)
