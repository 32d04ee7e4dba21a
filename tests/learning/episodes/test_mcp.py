"""Tools of MCP servers: the package's own server, by pipes and by HTTP, and servers that break."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from posttrain.backends.mcp import servers
from posttrain.backends.mcp.session import Tool
from posttrain.data.schemas import Problem
from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.environments.calls import arguments_of
from posttrain.learning.episodes.environments.mcp import Mcp
from posttrain.stage.errors import UserError

TOOLS = str(Path(__file__).with_name("mcp_tools.py"))
PROBLEM = Problem("p", "1 + 2?", "3", 1, "numeric")

# Speaks the protocol by hand, so that it can do what no server should.
FAULTY = """
import json, os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, signal.SIG_IGN)
tools = [{"name": name, "inputSchema": {"properties": {"text": {"type": "string"}}}}
         for name in ("say", "number", "die", "once", "hang", "noise", "flood")]
def tell(of, result):
    print(json.dumps({"jsonrpc": "2.0", "id": of, "result": result}), flush=True)
if len(sys.argv) > 2:
    sys.exit("no " + sys.argv[2])
for line in sys.stdin:
    asked = json.loads(line)
    method, of = asked["method"] if "method" in asked else "", asked.get("id")
    if method == "initialize":
        print(json.dumps({"jsonrpc": "2.0", "id": "x", "method": "ping"}), flush=True)
        assert json.loads(sys.stdin.readline()) == {"jsonrpc": "2.0", "id": "x", "result": {}}
        tell(of, {"protocolVersion": "2024-11-05", "capabilities": {}})
    if method == "tools/list":
        more = "cursor" in asked["params"]
        tell(of, {"tools": tools[1:]} if more else {"tools": tools[:1], "nextCursor": "1"})
    if method == "tools/call":
        name, text = asked["params"]["name"], asked["params"]["arguments"].get("text", "")
        sys.stderr.write("x" * 300_000); sys.stderr.flush()
        mark = Path(sys.argv[1])
        mark.write_text(mark.read_text() + name + " " if mark.exists() else name + " ")
        if name == "die" or name == "once" and mark.read_text().count("once") == 1: os._exit(3)
        if name == "hang": time.sleep(60)
        if name == "noise": print("hello", flush=True)
        if name == "flood": print("x" * (5 << 20), flush=True)
        said = str(os.getpid()) if name == "number" else text
        tell(of, {"content": [{"type": "text", "text": said}, {"type": "image", "data": ""}]})
if os.environ.get("STAYS"): time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _ended():
    yield
    servers.end_servers()
    assert servers._open == {}


@pytest.fixture
def faulty(tmp_path):
    script = tmp_path / "faulty.py"
    script.write_text(FAULTY)
    return ("python", str(script), str(tmp_path / "mark"))


def said(environment, text, **kwargs):
    situation = environment.step({}, [Act("policy", text, **kwargs)], 0)
    assert not situation.failed
    if not situation.asks:
        return None
    (told,) = situation.asks[0].new
    assert told.author.startswith("tool:")
    return told.text, situation.facts.get("tool_errors", 0.0)


def is_there(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone_in(process, seconds):
    deadline = time.monotonic() + seconds
    while is_there(process) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_there(process)


def check_real(environment):
    ask = environment.start(PROBLEM, 0).asks[0]
    assert ask.new[0].text == "add(a, b)\nfind(text)\nfails()\n1 + 2?"
    assert said(environment, "add(1, 2)") == ("3", 0.0)
    assert said(environment, 'f(x) = add({"b": 4, "a": 1})\n') == ("5", 0.0)
    assert said(environment, "find(who is it)") == ("<who is it>", 0.0)
    told, wrong = said(environment, "fails()")
    assert ("fails" in told, wrong) == (True, 1.0)
    told, wrong = said(environment, "add(1)")
    assert ("b" in told, wrong) == (True, 1.0)
    assert said(environment, "sub(1, 2)") == ("no tool sub", 1.0)
    assert said(environment, "the answer is f(3)") is None
    assert said(environment, "add(1, 2) is 3") is None
    assert said(environment, "add(1, 2)", cut=True) is None


@pytest.mark.slow
def test_tools_of_the_package_s_server_by_pipes():
    pytest.importorskip("mcp", reason="the extra test brings it")
    settings = {"files": (TOOLS,), "tools": ("add", "find", "fails"), "listed": True}
    check_real(Mcp(command=("python", TOOLS), **settings))
    with pytest.raises(UserError, match=r"no tool 'adds'; did you mean 'add'"):
        Mcp(command=("python", TOOLS), files=(TOOLS,), tools=("adds",)).start(PROBLEM, 0)


@pytest.mark.slow
def test_tools_of_the_package_s_server_by_http():
    pytest.importorskip("mcp", reason="the extra test brings it")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = Mcp(
        url=f"http://127.0.0.1:{port}/mcp", tools=("add", "find", "fails"), listed=True
    )
    with pytest.raises(UserError, match=r"is no server of tools: .*; correct `command` or `url`"):
        environment.start(PROBLEM, 0)
    process = subprocess.Popen(
        [sys.executable, TOOLS, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        check_real(environment)
    finally:
        process.kill()
        process.wait()
    lost = environment.step({}, [Act("policy", "add(1, 2)")], 0)
    assert lost.failed.startswith("the server of tools: ")  # neither right nor wrong


@pytest.mark.slow
def test_a_server_is_started_once_and_a_call_that_breaks_it_is_an_error_of_the_call(faulty):
    environment = Mcp(command=faulty, seconds=0.5)
    first, _ = said(environment, "number()")
    assert said(environment, "say(a (b), c)") == ("a (b), c\n[image]", 0.0)
    assert said(environment, "number()") == (first, 0.0)  # though 300 kB of errors wait each time
    assert said(environment, "once(a)") == ("a\n[image]", 0.0)  # lost once: it is asked again
    second, _ = said(environment, "number()")
    assert second != first
    for call in ("die()", "noise()", "flood()"):
        assert said(environment, call) == ("the tool ended", 1.0)
    third, _ = said(environment, "number()")
    assert said(environment, "hang()") == ("no answer in 0.5 s", 1.0)
    assert not is_there(third.partition("\n")[0])
    mark = Path(faulty[2]).read_text().split()
    # Twice, and never more often: a tool may do something.
    assert [mark.count(each) for each in ("once", "die", "noise", "hang")] == [2, 2, 2, 1]


def test_a_server_that_does_not_start_is_told_with_its_last_words(faulty):
    with pytest.raises(UserError, match=r"python is no server .*: it has ended: no key; correct"):
        Mcp(command=(*faulty, "key")).start(PROBLEM, 0)
    with pytest.raises(UserError, match=r"does not answer in 0\.3 s"):
        Mcp(command=("sleep", "60"), seconds_to_start=0.3).start(PROBLEM, 0)


@pytest.mark.slow
@pytest.mark.parametrize("stays", ["", "1"])
def test_a_server_ends_with_a_process_that_is_killed(faulty, stays):
    line = (
        "import sys, time; from posttrain.backends.mcp.servers import *;"
        f"s = ToolServer({faulty!r}, '', 5.0, 30.0);"
        "print(call(s, 'number', {}).text, flush=True);"
        "time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", line], stdout=subprocess.PIPE, env={**os.environ, "STAYS": stays}
    )
    server = process.stdout.readline().decode().strip()
    assert is_there(server)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert gone_in(server, 10.0)


def test_a_forked_process_starts_a_server_of_its_own(faulty):
    environment = Mcp(command=faulty)
    own = said(environment, "number()")
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        code = 1
        try:
            os.write(write, said(environment, "number()")[0].encode())
            servers.end_servers()
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as told:
        assert told.read() != own[0]
    assert os.waitpid(child, 0)[1] == 0
    assert said(environment, "number()") == own


def test_arguments_are_json_by_name_or_by_place():
    two, one = Tool("t", ("a", "b"), frozenset("a")), Tool("t", ("a",), frozenset("a"))
    assert arguments_of(two, '"x", [1, 2]') == {"a": "x", "b": [1, 2]}
    assert arguments_of(two, '{"b": 1}') == {"b": 1}
    assert arguments_of(one, "1999") == {"a": "1999"}
    assert arguments_of(Tool("t", ("a",)), "1999") == {"a": 1999}
    for tool, text in ((two, "x"), (two, "1, 2, 3"), (two, "[" * 100_000), (Tool("t", ()), "1")):
        with pytest.raises(ValueError, match=r"t\("):
            arguments_of(tool, text)


def test_one_server_of_this_machine_is_named():
    for wrong in ({}, {"command": ["a"], "url": "http://127.0.0.1:1/mcp"}):
        with pytest.raises(UserError, match="one of both"):
            Mcp.parse(wrong, where="environment")
    with pytest.raises(UserError, match="must be of this machine"):
        Mcp.parse({"url": "http://example.org/mcp"}, where="environment")
    assert Mcp(command=("a",)).reaches() == frozenset()
    assert Mcp(url="http://localhost:1/mcp").reaches() == {"endpoint"}
