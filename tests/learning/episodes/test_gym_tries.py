"""Problems of reasoning-gym that may be answered again: the library's scorer decides each try."""

from random import Random

import pytest

from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.worlds.reasoning_gym import GymTries
from posttrain.stage.errors import UserError

SUM = {
    "question": "4 - 1 =",
    "answer": "3",
    "metadata": {"source_dataset": "chain_sum"},
}


def said(world, situation, *texts):
    for text in texts:
        situation = world.step(situation.state, [Act("policy", text)], 0)
    return situation


def test_a_wrong_answer_may_be_given_again_until_no_try_is_left():
    world = GymTries()
    first = world.begin({"entry": SUM, "others": [], "left": 2, "told": "wrong"}, 0)
    second = said(world, first, "4")
    assert (second.asks[0].new[0].text, dict(second.earned)) == ("wrong, 1 left", {})
    right = said(world, second, " 3 ")
    assert (right.asks, right.earned) == ((), {"policy": 1.0})
    spent = said(world, second, "5")
    assert (spent.asks, dict(spent.earned)) == ((), {})


def test_what_a_wrong_answer_would_be_given_is_told_where_that_is_asked_for():
    # Of three words one is in its place: the library's scorer says so.
    world = GymTries(generator="letter_jumble", told="score")
    entry = {
        "question": "",
        "answer": "one two three",
        "metadata": {"source_dataset": "letter_jumble"},
    }
    first = world.begin({"entry": entry, "others": [], "left": 2, "told": "score"}, 0)
    told = said(world, first, "one owt eerht").asks[0].new[0].text
    assert told == "0.33, 1 left"


@pytest.mark.parametrize(
    "generator", ["spell_backward", "gcd", "word_sorting", "tower_of_hanoi", "maze", "sokoban"]
)
def test_generators_of_several_kinds_are_solved_by_their_own_answers(generator):
    world = GymTries(generator=generator)
    for seed in range(3):
        _, facts = world.pose(Random(seed))
        begun = world.begin(facts, 0)
        assert said(world, begun, world.best_move(begun.state, "policy", Random(0))).earned == {
            "policy": 1.0
        }
        for odd in ("\x00", "((", "9" * 900, "{}", "None"):
            assert not said(world, begun, odd).failed


def test_what_the_library_does_not_have_is_refused_in_one_sentence():
    with pytest.raises(UserError, match="no generator 'chain_sun'.*chain_sum"):
        GymTries(generator="chain_sun").pose(Random(0))
    with pytest.raises(UserError, match="options of 'gcd': .*largest"):
        GymTries(generator="gcd", options={"largest": 3}).pose(Random(0))
    with pytest.raises(UserError, match="runs the answer as code"):
        GymTries.parse({"generator": "codeio"}, where="world")
