"""Every world that ships keeps the promises of a world; what each answers has a test of its own."""

import json
import shutil
from copy import deepcopy
from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from posttrain.data.schemas import Problem
from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.environments.sandboxed import Sandboxed
from posttrain.learning.episodes.posed import lacking
from posttrain.learning.episodes.registry import EPISODE_ENVIRONMENTS
from posttrain.learning.episodes.script import play_script
from posttrain.learning.episodes.worlds.base import World

WORLDS = [kind for kind, part in EPISODE_ENVIRONMENTS.parts.items() if issubclass(part, World)]
_GAMES = 40


def world_of(kind):
    for program in EPISODE_ENVIRONMENTS.parts[kind].PROGRAMS:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    if any(each.is_required() for each in EPISODE_ENVIRONMENTS.parts[kind].model_fields.values()):
        pytest.skip("it plays tasks from elsewhere, which have no script")
    return EPISODE_ENVIRONMENTS.parse(kind)


def problem_of(world, seed):
    prompt, facts = world.pose(Random(seed))
    metadata = json.dumps({world.kind: facts})
    return Problem(world.kind, prompt, json.dumps(facts), 1, "played", metadata=metadata)


def played(world, seed, *, by):
    """An episode in which the policy plays by one of the moves, and all others by the best."""
    draw = Random(1000 + seed)

    def speak(state, role):
        return getattr(world, by if role == "policy" else "best_move")(state, role, draw)

    return play_script(world, problem_of(world, seed), speak, seed=seed, most_turns=200)


def total(episode, role="policy"):
    return sum(episode.earned(role))


def _param(kind):
    # A sandbox for every run of a program: some seconds a test.
    in_sandbox = issubclass(EPISODE_ENVIRONMENTS.find(kind), Sandboxed)
    return pytest.param(kind, marks=pytest.mark.slow if in_sandbox else ())


@pytest.fixture(params=map(_param, WORLDS))
def world(request):
    for name, remedy in lacking(EPISODE_ENVIRONMENTS.parts[request.param]):
        pytest.skip(f"{name} is not installed: {remedy}")
    return world_of(request.param)


def test_equal_chance_poses_equal_problems(world):
    assert world.pose(Random(5)) == world.pose(Random(5))
    assert len({json.dumps(world.pose(Random(seed))) for seed in range(20)}) > 1
    prompt, facts = world.pose(Random(5))
    assert prompt.strip() == prompt
    assert json.loads(json.dumps(facts)) == facts


def test_size_knobs_are_settings(world):
    assert world.SIZES
    assert {*world.SIZES} <= type(world).model_fields.keys()


def test_a_good_player_beats_a_random_one(world):
    assert world.has_script(), "as it stands each world has one; settings may take it away"
    best = fmean(total(played(world, seed, by="best_move")) for seed in range(_GAMES))
    by_chance = fmean(total(played(world, seed, by="random_move")) for seed in range(_GAMES))
    assert best >= by_chance + 0.3


def test_what_is_earned_adds_up_to_at_most_one_and_episodes_end(world):
    for by in ("best_move", "random_move"):
        for seed in range(10):
            episode = played(world, seed, by=by)
            assert episode.end == "over"
            assert 0.0 <= round(total(episode), 9) <= 1.0


def test_a_state_is_a_plain_value_and_never_changed(world):
    problem = problem_of(world, 3)
    situation = world.start(problem, 3)
    draw = Random(7)
    for turn in range(5):
        if not situation.asks:
            break
        before = deepcopy(situation.state)
        assert json.loads(json.dumps(before)) == before
        acts = [
            Act(ask.role, world.random_move(situation.state, ask.role, draw))
            for ask in situation.asks
        ]
        after = world.step(situation.state, acts, turn)
        assert situation.state == before
        assert world.step(json.loads(json.dumps(before)), acts, turn) == after
        situation = after


@pytest.mark.parametrize("said", ["", " ", "\x00", "x" * 5000, "-1", "9" * 5000, "{}", "a\nb"])
def test_anything_may_be_said(world, said):
    situation = world.start(problem_of(world, 4), 4)
    for turn in range(200):
        if not situation.asks:
            return
        acts = [Act(ask.role, said, cut=turn % 2 == 1) for ask in situation.asks]
        situation = world.step(situation.state, acts, turn)
        assert not situation.failed
    pytest.fail("the episode never ended")


def test_every_situation_in_which_somebody_is_asked_has_a_key(world):
    for by in ("best_move", "random_move"):
        episode = played(world, 8, by=by)
        assert all(situation.key for situation in episode.situations if situation.asks)


def test_a_policy_reads_something_each_time_it_is_asked_again(world):
    episode = played(world, 6, by="random_move")
    for situation in episode.situations[1:]:
        assert all(ask.new and all(told.text for told in ask.new) for ask in situation.asks)


def test_the_world_of_the_document_is_one():
    """docs/worlds.md shows a whole file: it poses, and its script solves what it poses."""
    page = (Path(__file__).parents[3] / "docs" / "worlds.md").read_text()
    namespace = {"__name__": "my_world"}
    exec(compile(page.split("```python\n")[1].split("```")[0], "my_world.py", "exec"), namespace)  # noqa: S102
    slot = EPISODE_ENVIRONMENTS
    assert slot.complaint("next_letter", namespace["NextLetter"]) is None
    made = namespace["NextLetter"](span=7)
    assert all(total(played(made, seed, by="best_move")) == 1.0 for seed in range(20))
    assert 0.0 < fmean(total(played(made, seed, by="random_move")) for seed in range(80)) < 0.6
