"""Twenty questions: the table, the answers, their noise, and how the script asks."""

from random import Random

import pytest

from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.worlds import twenty_questions
from posttrain.learning.episodes.worlds.twenty_questions import TwentyQuestions

THINGS = ["bee", "boat", "cow", "spoon"]


def begun(**changes):
    facts = {"hidden": "bee", "things": THINGS, "left": 4, "noise": 0.0, "tape": 3}
    return TwentyQuestions().begin({**facts, **changes}, 0)


def after(situation, *turns):
    for turn in turns:
        situation = TwentyQuestions().step(situation.state, (Act("policy", turn),), 0)
    return situation


def told(situation):
    return situation.asks[0].new[0].text


def test_no_two_things_of_the_table_are_alike():
    rows = {frozenset(row.split()) for row in twenty_questions._THINGS.values()}
    assert len(rows) == len(twenty_questions._THINGS)
    assert set().union(*rows) == set(twenty_questions._ATTRIBUTES)


def test_questions_are_answered_and_guesses_judged():
    assert told(after(begun(), "flies")) == "yes"
    assert told(after(begun(), "metal")) == "no"
    assert told(after(begun(), "cow")) == "no"
    assert after(begun(), "purple").facts == {"tool_errors": 1.0}
    assert dict(after(begun(), "flies", "bee").earned) == {"policy": 1.0}
    lost = after(begun(), "cow", "flies", "metal", "boat")
    assert (lost.asks, dict(lost.earned)) == ((), {})


def test_the_script_halves_what_is_left():
    """Bee and cow are alive and animals, boat and cow are big: two questions tell four apart."""
    world = TwentyQuestions()
    for hidden in THINGS:
        situation, turns = begun(hidden=hidden), []
        while situation.asks:
            turns.append(world.best_move(situation.state, "policy", Random(0)))
            situation = after(situation, turns[-1])
        assert len(turns) == 3
        assert turns[-1] == hidden


def test_answers_are_wrong_as_often_as_is_said_and_a_second_one_is_another():
    first = [told(after(begun(noise=0.2, tape=tape), "flies")) for tape in range(2000)]
    again = [told(after(begun(noise=0.2, tape=tape), "flies", "flies")) for tape in range(2000)]
    assert first.count("no") / 2000 == pytest.approx(0.2, abs=0.03)
    both = sum(one == two == "no" for one, two in zip(first, again, strict=True))
    assert both / 2000 == pytest.approx(0.04, abs=0.015)


def test_the_script_asks_again_where_the_user_may_be_wrong():
    noisy = after(begun(noise=0.3, left=9), "alive", "big")
    assert TwentyQuestions().best_move(noisy.state, "policy", Random(0)) not in THINGS
    # With no turn left but one it says what is likeliest.
    last = {**noisy.state, "left": 1}
    assert TwentyQuestions().best_move(last, "policy", Random(0)) in THINGS
