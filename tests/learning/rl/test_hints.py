"""Laws of hints: what they give, by hand."""

from random import Random

import pytest

from posttrain.learning.rl.hints.base import TriedShare
from posttrain.learning.rl.hints.fixed import Fixed
from posttrain.learning.rl.hints.growth import Growth
from posttrain.learning.rl.hints.item_response import ItemResponse
from posttrain.learning.rl.hints.retreating import Retreating
from posttrain.learning.rl.hints.scattered import Scattered
from posttrain.stage.schedule import at

FAILED, HALF = (False, False), (True, False)


def given(law, tried=(), recalled=(), seed=0):
    shown = [TriedShare(*each) for each in tried]
    return law.share(shown, [TriedShare(*each) for each in recalled], Random(seed))


def test_a_hint_grows_as_long_as_all_fails():
    law = Growth(shares=(0.25, 0.75))
    assert law.portions(8) == (8, 8, 8)
    assert given(law) == 0.0
    assert given(law, [(0.0, HALF)]) is None
    assert given(law, [(0.0, FAILED)]) == 0.25
    assert given(law, [(0.0, FAILED), (0.25, (None, None))]) == 0.75
    assert given(law, [(0.0, FAILED), (0.25, HALF)]) is None


@pytest.mark.parametrize("shares", [(0.5, 0.25), (0.0, 0.5), (0.5, 1.5), (0.5, 0.5)])
def test_a_hint_that_does_not_grow_is_refused(shares):
    with pytest.raises(ValueError, match="shares"):
        Growth(shares=shares)


def test_a_start_retreats_where_the_rest_is_solved():
    law = Retreating(first=0.75, by=0.5, solved=0.5)
    assert given(law) == 0.75
    assert given(law, recalled=[(0.75, FAILED)]) == 0.75
    assert given(law, recalled=[(0.75, HALF)]) == 0.25
    assert given(law, recalled=[(0.25, HALF)]) == 0.0
    # What nobody could judge was not solved.
    assert given(law, recalled=[(0.75, (None, None))]) == 0.75
    assert given(law, recalled=[(0.75, (None, True, False))]) == 0.25


def test_a_group_is_parted_among_the_rounds_of_a_fit():
    assert ItemResponse(rounds=4).portions(8) == (2, 2, 2, 2)
    assert ItemResponse(rounds=3).portions(8) == (3, 3, 2)
    assert ItemResponse(rounds=4).portions(2) == (1, 1)


def test_a_fit_goes_by_this_step_and_by_what_is_recalled():
    law = ItemResponse(first=0.3, most=0.9, memory=2)
    assert given(law) == 0.3
    assert given(law, [(0.3, (None, None))]) == 0.3
    failed = given(law, [(0.5, FAILED)])
    assert 0.5 < failed < given(law, [(0.5, FAILED)], recalled=[(0.6, FAILED)]) <= 0.9
    assert given(law, [(0.5, (True, True))]) < 0.5


def test_shares_are_scattered_between_their_ends_and_over_equal_parts():
    some = [given(Scattered(low=0.2, high=0.4), seed=seed) for seed in range(50)]
    assert all(0.2 <= each <= 0.4 for each in some)
    assert len(set(some)) == 50
    parts = {given(Scattered(parts=4), seed=seed) for seed in range(50)}
    assert parts == {0.0, 0.25, 0.5, 0.75, 1.0}
    with pytest.raises(ValueError, match="swap"):
        Scattered(low=0.6, high=0.4)


def test_what_is_given_fades_by_a_schedule():
    law = Fixed(given={"from": 0.8, "to": 0.0, "over": 4})
    assert [given(at(law, step, {})) for step in (0, 1, 4, 9)] == pytest.approx([0.8, 0.6, 0, 0])
