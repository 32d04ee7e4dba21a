"""A person in a role: asked at a real terminal, once for each question, and nowhere else."""

import fcntl
import os
import pty
import re
import select
import signal
import termios
import time
import traceback

import pytest

from posttrain.backends.endpoint.cache import VARIABLE
from posttrain.learning.episodes.config import PlayConfig
from posttrain.learning.episodes.play import play
from posttrain.learning.episodes.players.base import PlayBench
from posttrain.learning.episodes.players.person import PersonPlayer
from posttrain.learning.models.load import Policy
from posttrain.learning.rollouts.engines.base import SamplingParams
from posttrain.learning.rollouts.scoring import make_prompts
from posttrain.stage.errors import UserError
from posttrain.stage.needs import TERMINAL
from tests.learning.episodes.conftest import small_tokenizer
from tests.learning.episodes.test_roles import SEED, Duel, words

PERSON = {"kind": "person", "about": "Answer it."}


def opponents(tokenizer, problems, **person):
    """What the opponent said, twice for each of two problems."""
    player = PersonPlayer.parse(person, where="opponent")
    config = PlayConfig(environment=Duel(), roles={"opponent": player})
    # Nothing that computes with threads, which a forked process has not.
    seats = config.seated(PlayBench(words(tokenizer), tokenizer, Policy(None, tokenizer)))
    params = SamplingParams(max_tokens=4, temperature=1.0, num_samples=2, seed=SEED)
    prompts = make_prompts(tokenizer, problems[:2])
    asked = config.environment, problems[:2], prompts, seats.speakers(params)
    played = play(*asked, seed=SEED, most_turns=3)
    acts = [act for group in played for each in group for said in each.log for act in said]
    return [act.text for act in acts if act.role == "opponent"]


def at_terminal(work, typed, *, session=True):
    """Do something in a child with a terminal, at which lines are typed as they are asked for."""
    child, terminal = pty.fork()
    if not child:
        try:
            if not session:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
                fcntl.ioctl(0, termios.TIOCNOTTY)
            for said in work():
                os.write(1, f"\nSAID {said!r}\n".encode())
        except UserError as error:
            os.write(1, f"\nREFUSED {error}\n".encode())
        except Exception:  # noqa: BLE001 - shown where the test looks
            os.write(1, traceback.format_exc().encode())
        finally:
            os._exit(0)
    shown, left, deadline = "", list(typed), time.monotonic() + 30
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
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(terminal)
    assert not left, shown
    return shown.replace("\r\n", "\n")


@pytest.fixture(scope="module")
def plain():
    return small_tokenizer()


@pytest.fixture
def ask(plain, problems, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "requests.db"))
    return lambda **person: opponents(plain, problems, **person)


def test_a_person_is_asked_once_for_each_question(ask):
    typed = ["one\n", "two\\\n", "and a half\n", "3\n", "4\n"]
    first = at_terminal(lambda: ask(**PERSON), typed)
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
    assert "several processes share the policy out" in str(PersonPlayer().beyond_processes(2))
    assert PersonPlayer().reaches() == {TERMINAL}
    assert len(PersonPlayer().remarks()) == 1
