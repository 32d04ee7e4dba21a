"""Quests of TextWorld, where it is installed: what is read, what pays, what is kept."""

import json
import sys
from random import Random

import pytest

from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.worlds import textworld
from posttrain.learning.episodes.worlds.textworld import TextWorld
from posttrain.learning.episodes.worlds.underway import Underway
from posttrain.stage.errors import UserError


def walked(world, facts, by, *, seed=0):
    draw = Random(seed)
    situations = [world.begin(facts, 0)]
    while situations[-1].asks:
        state = json.loads(json.dumps(situations[-1].state))
        act = Act("policy", getattr(world, by)(state, "policy", draw))
        situations.append(world.step(state, [act], 0))
    return situations


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(UserError, match="pip install 'posttrain\\[textworld\\]'"):
        TextWorld().pose(Random(0))


class TestPlayed:
    """What needs the package, which no test environment has: it brings a GPL library along."""

    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("textworld", reason="textworld is an extra of its own (GPL, 378 MB)")

    def test_the_winning_plan_is_the_quest_and_pays_once_at_its_end(self):
        world = TextWorld(rooms=4, things=4, steps=4)
        for seed in range(3):
            prompt, facts = world.pose(Random(seed))
            played = walked(world, facts, "best_move")
            plan = facts["game"]["metadata"]["walkthrough"]
            assert played[-1].state["said"] == plan
            assert prompt.splitlines()[0] == plan[-1]
            assert [each.earned for each in played] == [{}] * len(plan) + [{"policy": 1.0}]

    def test_an_episode_is_told_by_its_commands_whatever_is_kept(self, monkeypatch):
        world = TextWorld(turns=8)
        facts = [world.pose(Random(seed)).facts for seed in range(3)]
        kept = [walked(world, each, "random_move") for each in facts]
        monkeypatch.setattr(textworld, "_UNDERWAY", Underway(0))
        assert [walked(world, each, "random_move") for each in facts] == kept

    def test_what_can_be_done_is_read_and_nothing_else_is_done(self):
        world = TextWorld()
        begun = world.begin(world.pose(Random(5)).facts, 0)
        _, _, can = begun.key.partition("; can ")
        for said in ("look", "fly", "", "go nowhere"):
            refused = world.step(begun.state, [Act("policy", said)], 0)
            assert said not in can.split(", ")
            assert refused.key == begun.key
            assert refused.facts == {"tool_errors": 1.0}
        for said in can.split(", "):
            assert world.step(begun.state, [Act("policy", said)], 0).state["said"] == [said]
