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
    assert marked == {"mcp", "openenv", "python", "repair"}
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
    watched = env("play", "tictactoe", "--by", "script").stdout
    assert "opponent" in watched


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
