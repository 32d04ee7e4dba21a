"""`posttrain env`: what environments there are, and playing in one on the terminal."""

import pytest

from posttrain.learning.episodes.posed import worlds
from posttrain.learning.episodes.registry import EPISODE_ENVIRONMENTS
from tests.forked import posttrain


@pytest.fixture
def env(tmp_path):
    def run(*words):
        return posttrain("env", *words, cwd=tmp_path)

    return run


def moves(tmp_path, *lines):
    file = tmp_path / "moves.txt"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def test_every_environment_is_listed_with_what_makes_it_larger(env):
    heading, *rows = [line.split("\t") for line in env("list", "--tsv").stdout.splitlines()]
    listed = {row[0]: dict(zip(heading, row, strict=True)) for row in rows}
    assert listed.keys() == EPISODE_ENVIRONMENTS.parts.keys()
    assert {kind for kind, each in listed.items() if each["is"] == "world"} == worlds().keys()
    assert listed["bandit"]["size"] == "arms, presses, gap"
    assert all(each["what"] for each in listed.values())


def test_what_a_clock_has_a_say_in_is_marked(env):
    heading, *rows = [line.split("\t") for line in env("list", "--tsv").stdout.splitlines()]
    exact = {row[0]: row[heading.index("exact")] for row in rows}
    marked = {kind for kind, value in exact.items() if value == "no"}
    assert marked == {"mcp", "openenv", "python", "repair", "verifiers"}
    assert env("list").stdout.count("not exact") == len(marked)
    assert "not exact" not in env("show", "calculator").stdout


def test_show_has_settings_and_an_episode_by_the_script(env):
    told = env("show", "guess", "--set", "size=1", "--set", "highest=3").stderr
    assert "size" in told
    told = env("show", "guess", "--set", "size=3", "--seed", "2").stdout
    assert "3 (default 16)" in " ".join(told.split())
    assert "Guesses that an episode has." in told
    # Of three numbers the script says the middle one, and knows the number after that.
    assert "score 1.00 (solved)" in told
    assert "(at " in told


def test_lines_of_a_file_are_played_and_their_end_is_no_error(env, tmp_path):
    file = moves(tmp_path, "no number")
    played = env("play", "guess", "--script", file)
    assert played.returncode == 0
    assert "not a number" in played.stdout
    assert "Nothing more was said: it stands after 1 turn, score 0.00 so far" in played.stdout
    # All sixteen numbers, in so many turns: one of them is right.
    low = int(played.stdout.split(" to ")[0].split()[-1])
    file = moves(tmp_path, *range(low, low + 16))
    played = env("play", "guess", "--set", "guesses=16", "--script", file)
    assert "earned 1.00" in played.stdout
    assert "score 1.00 (solved)" in played.stdout


def test_a_person_may_leave_at_once(env):
    assert "it stands after 0 turns" in env("play", "guess").stdout


def test_all_others_are_played_by_the_script(env, tmp_path):
    played = env("play", "tictactoe", "--script", moves(tmp_path, "nowhere"))
    assert played.returncode == 0
    assert "tool_errors 1" in played.stdout
    watched = env("play", "tictactoe", "--by", "random", "--role", "opponent", "--seed", "4").stdout
    assert "played by random in the role opponent, else by script" in watched
    # The policy's script wins, and what is told is what the opponent has of it.
    assert "earned 1.00" in watched
    assert "score of opponent 0.00" in watched


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["play", "gess"], "there is no environment 'gess'; did you mean 'guess'?"),
        (["play", "calculator"], "environment 'calculator' poses no problems of its own"),
        (["play", "guess", "--set", "size"], "--set 'size': write it as NAME=VALUE"),
        (["show", "guess", "--set", "size=100"], "guess: size 100 is above highest 99"),
        (["play", "guess", "--by", "random", "--script", "x"], "leave one of them out"),
        (["play", "guess", "--script", "no.txt"], "cannot read no.txt"),
        (["play", "guess", "--by", "script", "--role", "judge"], "nobody asks the role 'judge'"),
        (["play", "guess", "--policy", "nowhere"], "nowhere: there is no such checkpoint"),
    ],
)
def test_what_is_wrong_is_a_sentence(env, words, sentence):
    ended = env(*words)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


OWN = '''
from typing import ClassVar, Literal
from posttrain.learning.episodes.environments.base import POLICY, Ask, Situation
from posttrain.learning.episodes.worlds.base import Posed, World

class Parrot(World):
    """Say it again."""
    SIZES: ClassVar[tuple[str, ...]] = ()
    kind: Literal["parrot"] = "parrot"
    def pose(self, draw):
        return Posed("say a", {"want": "a"})
    def begin(self, facts, seed):
        return Situation({**facts}, (Ask(POLICY),), key="only")
    def step(self, state, acts, seed):
        return Situation(state, earned={POLICY: float(acts[0].text == state["want"])})
    def best_move(self, state, role, draw):
        return state["want"]
    def random_move(self, state, role, draw):
        return draw.choice("ab")

PARTS = {"environment": {"parrot": Parrot}}
'''


@pytest.fixture
def own(tmp_path):
    """Write the recipe's own world, with one of its lines replaced."""

    def write(old="", new=""):
        assert old in OWN
        file = tmp_path / "own_world.py"
        (tmp_path / ".dvc").mkdir(exist_ok=True)
        file.write_text(OWN.replace(old, new) if old else OWN)
        (tmp_path / "recipe.yaml").write_text("flow: flows.play\nformat: 3\nplugins: [own_world]\n")
        return 1 + OWN.partition(old)[0].count("\n") if old else 0

    return write


def test_a_bug_in_a_world_of_ones_own_is_a_sentence_with_its_line(env, own):
    line = own('text == state["want"]', 'text == state["wnt"]')
    said = f"error: environment.parrot raised KeyError: 'wnt' (own_world.py:{line})"
    for verb in ("show", "play --by script"):
        ended = env(*verb.split(), "parrot")
        assert (ended.returncode, ended.stderr.startswith(said)) == (2, True), ended.stderr
        assert "Traceback" not in ended.stderr
    assert "Traceback" in env("show", "parrot", "-v").stderr


def test_what_is_wrong_with_ones_own_world_is_said_where_it_is_looked_for(env, own):
    own("best_move", "best_mov")
    said = env("show", "parrot").stderr
    assert "does not implement best_move(state, role, draw); rename its best_mov" in said
    own("(Ask(POLICY),)", '(Ask("judge"),)')
    said = env("show", "parrot").stderr
    assert "`begin` asks the role judge, which it does not declare; let its ROLES name it" in said
    own("earned={POLICY:", 'earned={"player":')
    assert "`step` pays the role player, which it does not declare" in env("show", "parrot").stderr


def test_a_recipe_elsewhere_brings_its_worlds(env, own, tmp_path):
    own()
    (tmp_path / "recipes" / "mine").mkdir(parents=True)
    (tmp_path / "recipe.yaml").rename(tmp_path / "recipes" / "mine" / "recipe.yaml")
    assert "one of a plug-in is found by --recipe" in env("show", "parrot").stderr
    assert "solved" in env("play", "parrot", "--by", "script", "--recipe", "recipes/mine").stdout


def test_the_list_fits_a_terminal_of_eighty_columns(env, own):
    own()
    lines = env("list").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "  parrot" in {line[:8] for line in lines}
    assert any(line.strip() == "size: items, wished, turns" for line in lines)
