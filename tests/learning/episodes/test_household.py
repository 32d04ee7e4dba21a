"""Quests in a household: subgoals pay once each and are 1 together, and nothing is known unseen."""

from random import Random

import pytest

from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.worlds.household import Household

LIES = {"sink": [], "stove": ["cup"], "fridge": ["apple"], "desk 1": [], "drawer 1": ["apple"]}


def facts(quest, **settings):
    told = {"quest": quest, "wanted": "apple", "goal": "desk 1", "start": "stove", "turns": 20}
    return {**told, "lies": LIES, **settings}


def said(about, *lines):
    world = Household()
    situations = [world.begin(about, 0)]
    for turn, line in enumerate(lines):
        situations.append(world.step(situations[-1].state, [Act("policy", line)], turn))
    return situations


def paid(situations):
    return [round(each.earned.get("policy", 0.0), 9) for each in situations[1:]]


def test_to_hold_to_heat_and_to_place_pay_a_third_each():
    way = (
        "go fridge",
        "open",
        "take apple",
        "go stove",
        "heat apple",
        "go desk 1",
        "put hot apple",
    )
    played = said(facts("heat"), *way)
    assert paid(played) == [0, 0, 0.333333333, 0, 0.333333333, 0, 0.333333333]
    assert sum(each.earned.get("policy", 0.0) for each in played) == 1.0
    assert not played[-1].asks


def test_a_subgoal_pays_once_however_often_it_is_reached():
    taken = ("take apple", "put apple", "take apple")
    assert paid(said(facts("put"), "go fridge", "open", *taken))[2:] == [0.5, 0, 0]


def test_a_thing_in_its_place_that_is_not_as_it_should_be_pays_nothing():
    played = said(facts("cool"), "go fridge", "open", "take apple", "go desk 1", "put apple")
    assert sum(paid(played)) == pytest.approx(1 / 3)
    assert played[-1].asks


def test_two_of_a_kind_pay_quarters():
    one = ("go fridge", "open", "take apple", "go desk 1", "put apple")
    other = ("go drawer 1", "open", "take apple", "go desk 1", "put apple")
    played = paid(said(facts("two"), *one, *other))
    assert played == [0, 0, 0.25, 0, 0.25, 0, 0, 0.25, 0, 0.25]


def test_what_is_shut_is_read_once_it_is_open():
    begun, there, opened = said(facts("put"), "go fridge", "open")
    assert begun.key == "stove: cup"
    assert (there.key, opened.key) == ("fridge: shut", "fridge: apple")
    assert opened.asks[0].new[0].text == "fridge: apple"
    assert "fridge" not in there.state["seen"]


@pytest.mark.parametrize(
    "line", ["take apple", "heat cup", "put cup", "go stove", "open", "go hall"]
)
def test_what_cannot_be_done_costs_the_turn_and_changes_nothing(line):
    before, after = said(facts("put"), line)
    assert after.state == {**before.state, "left": 19}
    assert after.facts == {"tool_errors": 1.0}


@pytest.mark.parametrize("quest", ["put", "wash", "heat", "cool", "two"])
def test_who_is_thorough_solves_every_quest_also_after_blunders(quest):
    world = Household(quests=(quest,), places=6, things=5, turns=300)
    for seed in range(20):
        draw, earned = Random(seed), []
        situation = world.begin(world.pose(draw).facts, seed)
        while situation.asks:
            move = world.random_move if len(earned) < 12 else world.best_move
            act = Act("policy", move(situation.state, "policy", draw))
            situation = world.step(situation.state, [act], 0)
            earned.append(situation.earned.get("policy", 0.0))
        assert sum(earned) == 1.0
