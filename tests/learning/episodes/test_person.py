"""A person in a role: asked at a real terminal, once for each question, and nowhere else."""

import os
import pty
import re
import select
import sys
import time

import pytest

from posttrain.backends.endpoint.cache import VARIABLE
from posttrain.learning.episodes.config import PlayConfig
from posttrain.learning.episodes.play import play
from posttrain.learning.episodes.players.base import PlayBench
from posttrain.learning.episodes.players.person import PersonPlayer
from posttrain.stage.errors import UserError
from posttrain.stage.needs import TERMINAL
from tests.learning.episodes.test_roles import SEED, Duel, words

PERSON = {"kind": "person", "about": "Answer it."}


def opponents(tokenizer, problems, prompts, params, **person):
    """What the opponent said in the episodes of two problems."""
    player = PersonPlayer.parse(person, where="opponent")
    config = PlayConfig(environment=Duel(), roles={"opponent": player})
    # Nothing that computes with threads, which a forked process has not.
    seats = config.seated(PlayBench(words(tokenizer), tokenizer))
    asked = config.environment, problems[:2], prompts[:2], seats.speakers(params)
    played = play(*asked, seed=SEED, most_turns=3)
    acts = [act for each in played for said in each.log for act in said]
    return [act.text for act in acts if act.role == "opponent"]


def at_terminal(work, typed, *, session=True):
    """Do something in a child with a terminal, at which lines are typed as they are asked for."""
    child, terminal = pty.fork()
    if not child:
        code = 1
        try:
            if not session:
                os.setsid()
            for said in work():
                sys.stdout.write(f"\nSAID {said!r}\n")
            code = 0
        except UserError as error:
            sys.stdout.write(f"\nREFUSED {error}\n")
        finally:
            sys.stdout.flush()
            os._exit(code)
    shown, left, deadline = "", list(typed), time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            part = os.read(terminal, 4096)
        except OSError:
            break
        shown += part.decode()
        if left and re.search(r"(> |\.\.\. )$", shown):
            os.write(terminal, left.pop(0).encode())
            shown += "\x00"  # so that one prompt is answered once
    os.waitpid(child, 0)
    os.close(terminal)
    assert not left, shown
    return shown.replace("\r\n", "\n")


@pytest.fixture
def ask(tokenizer, problems, prompts, params, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "requests.db"))
    return lambda **person: opponents(tokenizer, problems, prompts, params, **person)


def test_a_person_is_asked_once_for_each_question(ask):
    first = at_terminal(lambda: ask(**PERSON), ["one\n", "two\\\n", "and a half\n", "3\n", "4\n"])
    assert "SAID 'one'\n\nSAID 'two\\nand a half'" in first
    assert first.count("Answer it.") == 4  # two episodes of two problems
    assert "duel: you are opponent; episode" in first
    assert "1 of 4\nAnswer it.\nuser: it said" in first
    again = at_terminal(lambda: ask(**PERSON), [])
    assert "Answer it." not in again
    assert again.count("SAID") == 4
    assert "SAID 'two\\nand a half'" in again
    other = at_terminal(lambda: ask(**PERSON, sitting="b"), ["5\n"] * 4)
    assert other.count("SAID '5'") == 4


def test_who_ends_the_input_goes_on_where_it_was(ask):
    left = at_terminal(lambda: ask(**PERSON), ["one\n", "\x04"])
    assert "REFUSED whoever plays opponent ended the input; run the same command again" in left
    rest = at_terminal(lambda: ask(**PERSON), ["2\n", "3\n", "4\n"])
    assert re.findall(r"SAID '(.*)'", rest) == ["one", "2", "3", "4"]


def test_what_a_model_wrote_moves_no_cursor(tmp_path):
    from posttrain.backends.terminal import open_terminal

    def work():
        return [open_terminal("x", tmp_path).ask("a\x1b[2Jb\nc", "r> ")]

    (tmp_path / "lock").touch()
    tmp_path = tmp_path / "lock"
    assert "a\\x1b[2Jb\nc\nr> " in at_terminal(work, ["y\n"])


def test_where_there_is_no_terminal_it_is_refused(ask):
    shown = at_terminal(lambda: ask(**PERSON), [], session=False)
    assert "REFUSED player person asks a person at the terminal, and there is none here" in shown
    assert PersonPlayer().reaches() == {TERMINAL}
    assert len(PersonPlayer().remarks()) == 1
