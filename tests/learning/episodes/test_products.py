"""Products: what the calculator answers, what pays, and what is left without it."""

import pytest

from posttrain.learning.episodes.environments.base import POLICY, Act, Ask, Told
from posttrain.learning.episodes.worlds.products import Products

WORLD = Products()


def begun(**facts):
    return WORLD.begin({"asked": "12 * 34", "calls": 2, **facts}, 0).state


def said(state, text, *, cut=False):
    return WORLD.step(state, [Act(POLICY, text, cut=cut)], 0)


def test_a_call_is_computed_and_the_product_pays():
    called = said(begun(), "calculate(12 * 34)")
    assert called.asks == (Ask(POLICY, (Told("tool:calculate", "408"),)),)
    assert not called.earned
    answered = said(called.state, " 408 ")
    assert answered.earned == {POLICY: 1.0}
    assert answered.asks == ()


@pytest.mark.parametrize("text", ["407", "408 409", "It is 408", "", "calculate(12 * 34) is 408"])
def test_anything_else_without_a_call_is_a_wrong_answer(text):
    answered = said(begun(), text)
    assert (answered.asks, answered.earned) == ((), {})


def test_calls_are_used_up_and_one_too_many_is_the_answer():
    twice = said(said(begun(), "calculate(1 + 1)").state, "calculate(2 +)")
    assert twice.facts == {"tool_errors": 1.0}
    assert twice.asks[0].new[0].text == "not a sum of whole numbers"
    assert said(twice.state, "calculate(12 * 34)").asks == ()
    assert said(twice.state, "408").earned == {POLICY: 1.0}


def test_without_calls_a_good_player_multiplies_and_a_call_is_a_wrong_answer():
    alone = begun(calls=0)
    assert WORLD.best_move(alone, POLICY, None) == "408"
    assert WORLD.best_move(begun(), POLICY, None) == "calculate(12 * 34)"
    assert said(alone, "calculate(12 * 34)") == said(alone, "nothing")


def test_what_was_cut_off_is_no_call():
    assert said(begun(), "calculate(12 * 3)", cut=True).asks == ()
