"""The house of doors: what can be said, what a lock asks for, and that the gem can be found."""

from random import Random

import pytest
from pydantic import ValidationError

from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.worlds.doors import Doors

# Room a; beyond b a red lock, whose key lies in a box in a; the gem lies open in b.
HOUSE = {
    "start": "a",
    "doors": [["a", "b", "red"], ["a", "c", ""]],
    "things": {"b": ["gem"]},
    "boxes": {"a": ["red key"]},
    "turns": 9,
}


def said(*lines, facts=HOUSE):
    world = Doors()
    situations = [world.begin(facts, 0)]
    for turn, line in enumerate(lines):
        situations.append(world.step(situations[-1].state, [Act("policy", line)], turn))
    return situations


def read(situation):
    return situation.asks[0].new[0].text


def test_a_key_from_a_box_opens_the_way_to_the_gem():
    begun, opened, taken, through, solved = said("open box", "take red key", "unlock b", "take gem")
    assert begun.key == "in a; locked b red; can go c, open box"
    assert read(opened) == "in a; locked b red; can go c, take red key"
    assert read(taken) == "in a; locked b red; has red key; can go c, unlock b"
    assert read(through) == "in b; has red key; can go a, take gem"
    assert (solved.earned, solved.asks) == ({"policy": 1.0}, ())


@pytest.mark.parametrize("line", ["unlock b", "go b", "take red key", "take gem", "go a", "open"])
def test_what_cannot_be_done_costs_the_turn_and_changes_nothing(line):
    before, after = said(line)
    assert read(after) == "you cannot; in a; locked b red; can go c, open box"
    assert after.facts == {"tool_errors": 1.0}
    assert after.state == {**before.state, "left": 8}
    assert after.key == before.key


def test_equal_places_are_equal_situations_however_they_were_reached():
    there_and_back = said("go c", "go a")[-1]
    assert there_and_back.key == said()[0].key
    assert there_and_back.state["left"] == 7


def test_the_last_turn_asks_nobody():
    assert said(*["go c", "go a"] * 4, "go c")[-1].asks == ()


@pytest.mark.parametrize("rooms", [2, 5, 9])
def test_every_house_can_be_solved_by_who_is_thorough(rooms):
    world = Doors(rooms=rooms, locks=min(rooms - 1, 8), turns=200)
    for seed in range(30):
        situation = world.begin(world.pose(Random(seed)).facts, seed)
        while situation.asks:
            move = world.best_move(situation.state, "policy", Random(seed))
            situation = world.step(situation.state, [Act("policy", move)], 0)
        assert situation.earned == {"policy": 1.0}


def test_more_locks_than_doors_are_refused():
    with pytest.raises(ValidationError, match="3 rooms have 2 doors, not 3"):
        Doors(rooms=3, locks=3)
