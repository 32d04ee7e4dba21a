"""Servers of environments where a stage is held: they start, they answer, and they are held too."""

import json
import socket
import subprocess
import sys
import threading

import pytest

from posttrain.learning.episodes.environments.mcp import Mcp
from posttrain.learning.episodes.environments.openenv import OpenEnv
from posttrain.pipeline.hermetic.process import holds_here, isolation

TOOLS = """
import json, os, socket, sys
def tell(of, result):
    print(json.dumps({"jsonrpc": "2.0", "id": of, "result": result}), flush=True)
def did(name, text):
    try:
        if name == "read": return open(text).read()
        if name == "write": return str(open(text, "w").write("x"))
        if name == "connect": return str(socket.create_connection(("127.0.0.1", int(text)), 5))
    except OSError as error:
        return type(error).__name__
    return text
tools = [{"name": name, "inputSchema": {"properties": {"text": {"type": "string"}}}}
         for name in ("say", "read", "write", "connect")]
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        tell(asked["id"], {"protocolVersion": "2025-06-18", "capabilities": {}})
    if asked["method"] == "tools/list":
        tell(asked["id"], {"tools": tools})
    if asked["method"] == "tools/call":
        said = did(asked["params"]["name"], asked["params"]["arguments"]["text"])
        tell(asked["id"], {"content": [{"type": "text", "text": said}]})
"""

HELD = """
import json, sys
from pathlib import Path
from posttrain.data.schemas import Problem
from posttrain.learning.episodes.environments.base import Act
from posttrain.learning.episodes.registry import EPISODE_ENVIRONMENTS
from posttrain.pipeline.hermetic.process import hold
from posttrain.pipeline.hermetic.view import StageView
here = Path.cwd()
settings, *calls = json.loads(sys.argv[1])
environment = EPISODE_ENVIRONMENTS.parse(settings)
inputs = tuple(here / each for each in environment.read_files())
(here / "scratch").mkdir(exist_ok=True)
packages = frozenset({"httpx2", "websockets"})
hold(StageView("toy", here, here, inputs=inputs, writes=(here / "scratch",), packages=packages,
               reach=environment.reaches()))
situation = environment.start(Problem("p", "?", "3", 1, "numeric"), 0)
for call in calls:
    situation = environment.step(situation.state, [Act("policy", call)], 0)
    assert not situation.failed, situation.failed
    print(situation.asks[0].new[0].text)
environment.close(situation.state)
"""

pytestmark = pytest.mark.skipif(not holds_here(), reason="this kernel holds no stage")


def said(folder, settings, *calls):
    """What calls were answered with, in a process that is held as a stage is."""
    done = subprocess.run(
        [sys.executable, "-c", HELD, json.dumps([settings, *calls])],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_server_of_tools_is_held_to_what_its_stage_may_reach(tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "notes.txt").write_text("given")
    (tmp_path / "secret.txt").write_text("of the project")
    settings = {"kind": "mcp", "command": ["python", "tools.py"]}
    settings["files"] = ["tools.py", "notes.txt"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told = said(
            tmp_path,
            settings,
            "say(hello)",
            "read(notes.txt)",
            "read(secret.txt)",
            "write(notes.txt)",
            "write(scratch/made.txt)",
            f"connect({port})",
        )
    assert told[:5] == ["hello", "given", "PermissionError", "PermissionError", "1"]
    if isolation(held=True) == "held":
        assert told[5] == "PermissionError"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mcp", "openenv"])
def test_a_server_at_an_address_is_reached_as_the_environment_declares(tmp_path, kind):
    if kind == "openenv":
        serve = pytest.importorskip("websockets.sync.server").serve

        def episode(connection):
            for line in connection:
                data = json.loads(line).get("data", {})
                observed = {"observation": data.get("message", "begun"), "reward": 0.0}
                connection.send(json.dumps({"type": "observation", "data": observed}))

        server = serve(episode, "127.0.0.1", 0)
        settings = OpenEnv(url=f"http://127.0.0.1:{server.socket.getsockname()[1]}")
    else:
        server = _http_tools()
        settings = Mcp(url=f"http://127.0.0.1:{server.server_port}/mcp")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        text = "hello" if kind == "openenv" else "say(hello)"
        assert said(tmp_path, settings.model_dump(mode="json"), text) == ["hello"]
    finally:
        server.shutdown()


def _http_tools():
    """The tool `say` by HTTP, a message an answer."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    properties = {"text": {"type": "string"}}
    tools = [{"name": "say", "inputSchema": {"properties": properties}}]

    class Tools(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            arguments = asked.get("params", {}).get("arguments", {})
            results = {
                "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}},
                "tools/list": {"tools": tools},
                "tools/call": {"content": [{"type": "text", "text": arguments.get("text")}]},
            }
            told = {"jsonrpc": "2.0", "id": asked.get("id"), "result": results.get(asked["method"])}
            body = json.dumps(told).encode() if "id" in asked else b""
            self.send_response(200 if body else 202)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *said):
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Tools)
