"""MiniGrid as text: what is read of a place, and that the moves alone say where an episode is."""

import json
import sys
from random import Random

import pytest
from pydantic import ValidationError

from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.worlds import minigrid
from posttrain.learning.episodes.worlds.minigrid import MiniGrid, look_around
from posttrain.learning.episodes.worlds.underway import Underway
from posttrain.stage.errors import UserError


def walked(world, seed, by):
    """The situations of an episode, whose states come from JSON."""
    draw = Random(seed)
    situations = [world.begin(world.pose(Random(seed)).facts, 0)]
    while situations[-1].asks:
        state = json.loads(json.dumps(situations[-1].state))
        act = Act("policy", getattr(world, by)(state, "policy", draw))
        situations.append(world.step(state, [act], 0))
    return situations


def corner():
    """A room of four by four places, with its walls, seen from (1, 3) towards the right."""
    import gymnasium
    import minigrid  # noqa: F401
    from minigrid.core.grid import Grid
    from minigrid.core.world_object import Ball, Door, Key

    made = gymnasium.make("BabyAI-GoToLocal-v0", room_size=6, num_dists=2).unwrapped
    made.reset(seed=0)
    made.grid = Grid(6, 6)
    made.grid.wall_rect(0, 0, 6, 6)
    made.put_obj(Ball("red"), 3, 2)
    made.put_obj(Key("blue"), 4, 3)
    made.put_obj(Door("grey", is_locked=True), 5, 1)
    made.agent_pos, made.agent_dir, made.carrying = (1, 3), 0, Key("green")
    return made


def test_what_is_read_of_a_place_is_what_stands_there():
    # Columns from left (up) to right (down): beyond the room's wall nothing is seen; y = 0 is wall;
    # y = 1 is floor for four places, then the door; y = 2 for two, then the ball; ahead two, then
    # the key; y = 4 four, then the wall; y = 5 is wall; beyond it nothing is seen.
    assert look_around(corner()).text() == (
        "042240a; blue key f3; red ball f2 l1; grey door locked f4 l2; has green key"
    )


def test_an_episode_is_told_by_its_moves_whatever_is_kept(monkeypatch):
    world = MiniGrid(levels=("pick_up", "unlock", "put_next"), turns=14)
    kept = [walked(world, seed, "random_move") for seed in range(4)]
    monkeypatch.setattr(minigrid, "_UNDERWAY", Underway(0))
    assert [walked(world, seed, "random_move") for seed in range(4)] == kept


def test_an_environment_is_freed_with_its_episode(monkeypatch):
    monkeypatch.setattr(minigrid, "_UNDERWAY", kept := Underway(9))
    world = MiniGrid()
    begun = world.begin(world.pose(Random(1)).facts, 0)
    after = world.step(begun.state, [Act("policy", "left")], 0)
    assert len(kept) == 1
    world.close(after.state)
    assert not len(kept)


def test_equal_views_are_equal_situations():
    world = MiniGrid()
    begun = world.begin(world.pose(Random(1)).facts, 0)
    around = begun
    for _ in range(4):
        around = world.step(around.state, [Act("policy", "left")], 0)
    assert around.key == begun.key
    assert around.state["pose"] == [0, 0, 0]


@pytest.mark.parametrize("level", minigrid._LEVELS)
def test_the_script_fulfils_every_kind_of_mission(level):
    world = MiniGrid(levels=(level,), size=5, things=2, turns=150, moves=3)
    for seed in range(3):
        assert walked(world, seed, "best_move")[-1].earned == {"policy": 1.0}


def test_a_turn_may_hold_several_moves_and_no_more():
    world = MiniGrid(moves=2)
    begun = world.begin(world.pose(Random(2)).facts, 0)
    both = world.step(begun.state, [Act("policy", "left left")], 0)
    assert both.state["pose"] == [0, 0, 2]
    for said in ("left left left", "left jump", ""):
        refused = world.step(begun.state, [Act("policy", said)], 0)
        assert refused.state == {**begun.state, "left": 23}
        assert refused.facts == {"tool_errors": 1.0}
        assert refused.asks[0].new[0].text == f"no such move; {begun.key}"


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(UserError, match="pip install 'posttrain\\[grid\\]'"):
        MiniGrid().pose(Random(0))


def test_a_room_that_is_too_small_is_refused():
    with pytest.raises(ValidationError, match="size 5 has room for 3 things, not 4"):
        MiniGrid(size=5, things=4)
