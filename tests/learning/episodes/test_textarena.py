"""TextArena: its games played twice alike, whatever is kept of them; scripts, seats, refusals."""

import json
import random
from random import Random

import pytest
from pydantic import ValidationError

from posttrain.data.schemas import Problem
from posttrain.data.sources.world import WorldSource
from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.registry import EPISODE_ENVIRONMENTS
from posttrain.learning.episodes.script import play_script
from posttrain.learning.episodes.worlds import textarena
from posttrain.learning.episodes.worlds.textarena import TextArena
from posttrain.learning.episodes.worlds.underway import Underway
from posttrain.stage.errors import UserError


def problem_of(world, seed):
    prompt, facts = world.pose(Random(seed))
    metadata = json.dumps({world.kind: facts})
    return Problem(world.kind, prompt, json.dumps(facts), 1, "played", metadata=metadata)


def played(world, seed, *, by="random_move"):
    draw = Random(seed)

    def speak(state, role):
        return getattr(world, by if role == "policy" else "best_move")(state, role, draw)

    return play_script(world, problem_of(world, seed), speak, seed=0, most_turns=200)


def forget():
    textarena._UNDERWAY = Underway(256)


def alike_and_over(game):
    """A game by random moves, played once with nothing kept of it and once with all."""
    world = TextArena(game=game, turns=30)
    forget()
    first = played(world, 3)
    assert first.end == "over"
    assert played(world, 3) == first
    return first


@pytest.mark.parametrize("game", ["Nim-v0-large", "GuessTheNumber-v0", "KuhnPoker-v0", "Snake-v0"])
def test_a_game_is_the_same_whatever_is_kept_of_it(game):
    alike_and_over(game)


@pytest.mark.slow
@pytest.mark.parametrize("game", sorted(textarena._PLAYERS))
def test_every_game_that_is_offered_runs_to_its_end_twice_alike(game):
    episode = alike_and_over(game)
    earned = [sum(episode.earned(role)) for role in ("policy", "opponent")]
    assert all(0.0 <= each <= 1.0 for each in earned)


def test_games_side_by_side_draw_from_chances_of_their_own():
    """They draw from the process's chance: neither another game nor the process feels it."""
    world, draw = TextArena(game="PigDice-v0", turns=12), Random(1)
    facts = [world.pose(Random(seed)).facts for seed in range(2)]
    alone = [advanced(world, each, ["[roll]"] * 6) for each in facts]
    forget()
    random.seed(draw.random())
    before = random.getstate()
    mixed = [[world.begin(each, 0)] for each in facts]
    for _ in range(6):
        for situations in mixed:
            situations.append(stepped(world, situations[-1], "[roll]"))
    assert random.getstate() == before
    assert mixed == alone


def stepped(world, situation, move):
    if not situation.asks:
        return situation
    return world.step(situation.state, (Act(situation.asks[0].role, move),), 0)


def advanced(world, facts, moves):
    situations = [world.begin(facts, 0)]
    for move in moves:
        situations.append(stepped(world, situations[-1], move))
    return situations


@pytest.mark.parametrize("game", ["GuessTheNumber-v0", "TowerOfHanoi-v0", "TowerOfHanoi-v0-medium"])
def test_a_script_solves_its_game(game):
    world = TextArena(game=game)
    assert [sum(played(world, seed, by="best_move").earned("policy")) for seed in range(5)] == [
        1
    ] * 5


def test_in_nim_the_first_of_two_good_players_wins():
    """3, 4 and 5 are 2 in sum without carrying, so whoever begins can win."""
    world = TextArena(opponent_errors=0.0)
    for seed in range(8):
        episode = played(world, seed, by="best_move")
        begins = not episode.situations[0].state["moves"]
        assert sum(episode.earned("policy")) == float(begins)
        assert sum(episode.earned("opponent")) == 1.0 - begins


def test_an_opponent_that_comes_later_reads_the_rules_first():
    world = TextArena(opponent_errors=0.0)
    seed = next(seed for seed in range(20) if world.pose(Random(seed)).facts["moves"])
    problem = problem_of(world, seed)
    assert "player 0: [" in problem.prompt
    first = world.start(problem, 0)
    second = stepped(world, first, world.best_move(first.state, "policy", Random(0)))
    assert second.asks[0].role == "opponent"
    assert second.asks[0].new[0].text.startswith("Welcome to Nim, Player 0!")


def test_what_is_no_move_is_counted_and_loses_the_second_time():
    world = TextArena(game="GuessTheNumber-v0")
    first, second = advanced(world, world.pose(Random(0)).facts, ["hello", "again"])[1:]
    assert first.facts == second.facts == {"tool_errors": 1.0}
    assert first.asks
    assert (second.asks, second.earned) == ((), {"policy": 0.0})


def test_a_game_without_a_script_says_so_and_poses_problems_alone():
    world = EPISODE_ENVIRONMENTS.parse({"kind": "textarena", "game": "KuhnPoker-v0"})
    assert not world.has_script()
    state = world.begin(world.pose(Random(0)).facts, 0).state
    with pytest.raises(UserError, match="KuhnPoker-v0 has no script that plays it well"):
        world.best_move(state, "policy", Random(0))
    assert world.best_move(state, "opponent", Random(0)).startswith("[")
    with pytest.raises(ValidationError, match="no script plays world 'textarena'"):
        WorldSource(world=world)
    assert WorldSource(world=world, demonstrations=0).world == world


@pytest.mark.parametrize("game", ["Wordle-v0", "TwentyQuestions-v0", "Taboo-v0", "Go", ""])
def test_games_that_do_not_run_offline_are_refused(game):
    with pytest.raises(ValidationError, match=f"game '{game}' is not among those"):
        TextArena(game=game)


def test_a_size_that_the_library_has_not_is_refused_in_a_sentence():
    with pytest.raises(UserError, match="textarena has no game 'Nim-v0-gigantic'"):
        TextArena(game="Nim-v0-gigantic").pose(Random(0))
