"""The vote of several policies: who weighs how much, and what is elected."""

import pytest

from posttrain.learning.rl.exchanges.vote import elected, self_consistency


@pytest.mark.parametrize(
    ("ballot", "share"),
    [
        (["4", "4", "5", None], 0.5),
        (["4", "5", "6", "7"], 0.25),
        (["4", "4", "4", "4"], 1.0),
        ([None, None], 0.0),
    ],
)
def test_self_consistency_is_how_often_the_commonest_answer_comes(ballot, share):
    assert self_consistency(ballot) == share


def test_a_policy_that_agrees_with_itself_outvotes_several_that_do_not():
    # Two policies say 4 twice each among others, at 1/2: 2 * 2 * 1/2 = 2; one says 5 always: 4 * 1.
    torn, sure = ["4", "4", "6", "7"], ["5", "5", "5", "5"]
    assert elected([torn, torn, sure], weighted=True) == "5"
    # Counted alike 4 and 5 have four votes each, of which 4 was met first.
    assert elected([torn, torn, sure], weighted=False) == "4"
    assert elected([sure, torn, torn], weighted=False) == "5"


def test_weights_are_of_a_policy_and_not_of_an_answer():
    # 6 has 1 * 1/2 of the first and 2 * 2/3 of the second, 4 has 2 * 1/2 of the first: 11/6 to 1.
    assert elected([["4", "4", "6", "7"], ["6", "6", "4"]], weighted=True) == "6"


def test_where_nobody_states_anything_nothing_is_elected():
    assert elected([[None, None], [None]], weighted=True) is None
    assert elected([[None, None], [None, "3"]], weighted=True) == "3"
