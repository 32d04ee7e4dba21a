"""Environments behind servers of OpenEnv: the package's own, and one that speaks its messages."""

import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from posttrain.backends.openenv import sessions
from posttrain.data.schemas import Problem
from posttrain.learning.episodes.environments.base import Act, Said
from posttrain.learning.episodes.environments.openenv import OpenEnv
from posttrain.learning.episodes.episode import Episode, Segment, Span
from posttrain.learning.rewards.components.verifier import scores_of
from posttrain.learning.rewards.verify import verify_all
from posttrain.learning.rl.drawn import of_episode
from posttrain.stage.errors import UserError

pytest.importorskip("websockets")

SAID = Segment("policy", (1, 2), (Span(0, 1, 0, False), Span(1, 2, 0, True)), (-0.5,), (0,), ("x",))
SERVER = str(Path(__file__).with_name("openenv_server.py"))
PROBLEM = Problem("p", "guess", "{}", 1, "played", metadata='{"openenv": {"add": 4}}')

AS_IT_STANDS = {
    "nan": '{"type": "observation", "data": {"observation": 1, "reward": NaN}}',
    "odd": "[1]",
    "pass": '{"type": "observation", "data": {"observation": 1, "reward": 0.0, "done": true}}',
}


@pytest.fixture(autouse=True)
def _ended():
    yield
    left = list(sessions._open)
    for session in left:
        sessions.end_session(session)
    assert left == []


def _digit(connection):
    """What `openenv_server.py` does, with the same messages."""
    digit = 0

    def tell(text, reward=None, done=False):
        data = {"observation": {"text": text}, "reward": reward, "done": done}
        connection.send(json.dumps({"type": "observation", "data": data}))

    for line in connection:
        asked = json.loads(line)
        data = asked.get("data", {})
        if asked["type"] == "reset":
            digit = (data["seed"] + data.get("add", 0)) % 10
            tell("a digit?")
        elif asked["type"] == "step":
            said = data.get("message", "")
            if said == "wait":
                continue
            if said == "leave":
                return
            if said in AS_IT_STANDS:
                connection.send(AS_IT_STANDS[said])
            elif said == "full":
                full = {"message": "full", "code": "CAPACITY_REACHED"}
                connection.send(json.dumps({"type": "error", "data": full}))
            elif not said.isdigit():
                wrong = {"message": f"no digit: {said}", "code": "EXECUTION_ERROR"}
                connection.send(json.dumps({"type": "error", "data": wrong}))
            elif int(said) == digit:
                tell("right", 2.0, done=True)
            else:
                tell("more" if int(said) < digit else "less", 0.25)


@pytest.fixture(scope="module")
def url():
    from websockets.sync.server import serve

    with serve(_digit, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


@contextmanager
def begun(environment, seed=3, problem=PROBLEM):
    situation = environment.start(problem, seed)
    json.dumps(situation.state)
    try:
        yield situation
    finally:
        environment.close(situation.state)


def said(environment, situation, text, **kwargs):
    return environment.step(situation.state, [Act("policy", text, **kwargs)], 0)


def check(address):
    environment = OpenEnv(url=address, shows="text", scale=0.75)
    with begun(environment, 3) as first, begun(environment, 2**31 + 4) as other:
        assert [told.text for told in first.asks[0].new] == ["a digit?"]
        # The digits are (seed + add) % 10: 7 and 8, in sessions of their own.
        turns = [Said(each.state, [Act("policy", "7")], 0) for each in (first, other)]
        over, told = environment.step_all(turns)
        # 2.0 * 0.75 is held at 1; 0.25 * 0.75 counts whole.
        assert (over.asks, over.earned) == ((), {"policy": 1.0})
        assert told.asks[0].new[0].text == "more"
        assert told.earned == {"policy": 0.1875}
        wrong = said(environment, told, "x")
        assert wrong.facts == {"tool_errors": 1.0}
        assert wrong.asks[0].new[0].text
        assert wrong.state == told.state
        last = said(environment, wrong, "8")
        assert (last.asks, last.earned) == ((), {"policy": 0.8125})  # the rest up to 1


def test_an_episode_is_a_session_and_what_it_earns_is_held_within_1(url):
    check(url)


@pytest.mark.slow
def test_the_package_s_server_is_played_in():
    pytest.importorskip("openenv.core", reason="openenv-core brings a hundred packages")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    process = subprocess.Popen([sys.executable, SERVER, str(port)])
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        check(address)
        environment = OpenEnv(url=address)
        with (
            begun(environment),
            begun(environment),
            pytest.raises(UserError, match="as many sessions as episodes are played"),
        ):
            environment.start(PROBLEM, 0)
    finally:
        process.kill()
        process.wait()


def test_what_the_server_breaks_is_neither_right_nor_wrong(url):
    environment = OpenEnv(url=url, seconds=0.3)
    for text, why in (
        ("wait", "does not answer in time"),
        ("odd", "no message of OpenEnv"),
        ("full", "full"),
        ("nan", "its reward is no number"),
        ("leave", ""),
    ):
        with begun(environment) as situation:
            broken = said(environment, situation, text)
            assert broken.failed.startswith("the server: ")
            assert why in broken.failed
            assert not broken.earned
    assert "its session is over" in said(environment, situation, "1").failed


@pytest.mark.parametrize(("text", "cut"), [("pass", False), ("1", True), ("x", False)])
def test_an_only_turn_that_earned_nothing_is_judged(url, text, cut):
    """Else nobody would be wrong in an environment of one turn, and right ones alone compared."""
    with begun(OpenEnv(url=url)) as situation:
        after = said(OpenEnv(url=url), situation, text, cut=cut)
        acts = ((Act("policy", text, cut),),)
        (row,) = of_episode(
            Episode("p/0", (SAID,), (situation, after), acts, "over"), PROBLEM, group=0, version=0
        )
        assert row.turns == ((0.0, ""),)
        (score,) = scores_of([(row.text, PROBLEM)], [[paid for paid, _ in row.turns]], verify_all)
        assert (score.value, score.correct) == (0.0, False)


def test_what_is_read_and_said_is_shaped_by_settings(url):
    for begins, text in (("problem", None), ("both", 'guess\n{"text": "a digit?"}')):
        with begun(OpenEnv(url=url, begins=begins)) as situation:
            assert [told.text for told in situation.asks[0].new] == ([text] if text else [])
    environment = OpenEnv(url=url, takes=None, action={"message": "1"}, reset={"add": 9})
    with begun(environment, 1, Problem("p", "guess", "{}", 1, "played")) as situation:
        for no_json in ("[1]", '{"message": NaN}', '{"message": 1e999}'):
            assert said(environment, situation, no_json).facts == {"tool_errors": 1.0}
        assert said(environment, situation, "{}").earned == {"policy": 0.25}  # the digit is 0
        assert said(environment, situation, '{"message": "0"}').earned == {"policy": 1.0}
        assert said(environment, situation, '{"message": "0"}', cut=True).asks == ()
    with pytest.raises(UserError, match=r"has no 'a\.b'; it is \{\"text\": \"a digit\?\"\}"):
        OpenEnv(url=url, shows="a.b").start(PROBLEM, 0)


def test_an_address_that_nobody_serves_is_told():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(UserError, match=f"no episode begins at http://127.0.0.1:{port}: "):
        OpenEnv(url=f"http://127.0.0.1:{port}").start(PROBLEM, 0)
    with pytest.raises(UserError, match="an address alone"):
        OpenEnv.parse({"url": "http://me:key@127.0.0.1:1"}, where="environment")
    assert OpenEnv(url="http://127.0.0.1:1").reaches() == {"endpoint"}
