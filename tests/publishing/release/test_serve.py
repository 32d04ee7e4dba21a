"""The serving command, the check of a served completion, and the upload.

vLLM is not here, and neither is the hub: small HTTP servers stand in for both (health, and
completions by token ids; `tests.hub_server`). What is tested is our side of them.
"""

import shlex
import shutil
import stat
import subprocess
import sys
import urllib.request

import pytest

from posttrain import __version__
from posttrain.publishing.release.distribute import serve, serve_command
from posttrain.publishing.release.verify import verify_path
from posttrain.stage.errors import UserError
from tests import hub_server

pytestmark = pytest.mark.slow

FAKE_VLLM = """#!PYTHON
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
arguments = dict(zip(sys.argv[3::2], sys.argv[4::2]))
stored = json.load(open(sys.argv[2] + "/release/example.json"))
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def reply(self, body):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())
    def do_GET(self):
        self.reply({})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        right = (asked["prompt"] == stored["prompt_ids"] and asked["temperature"] == 0
            and asked["model"] == arguments["--served-model-name"]
            and asked["max_tokens"] == len(stored["completion_ids"]))
        self.reply({"choices": [{"text": stored["completion"] if right and SANE else "other"}]})
HTTPServer((arguments["--host"], int(arguments["--port"])), Handler).serve_forever()
"""


@pytest.fixture
def fake_vllm(tmp_path):
    def write(*, sane):
        path = tmp_path / "vllm"
        text = FAKE_VLLM.replace("PYTHON", sys.executable).replace("SANE", str(sane))
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return write


def test_the_command_states_what_decides_a_token(released):
    command = serve_command(released.second, "mini@v1.1.0", host="127.0.0.1", port=8000)
    line = shlex.join(command)
    assert line.startswith(f"vllm serve {released.second} --served-model-name mini@v1.1.0")
    assert "--dtype float32" in line
    assert "--seed 0" in line
    assert "--max-model-len" in line


def test_a_server_that_answers_as_stored_serves_on(released, fake_vllm, free_port):
    command = serve_command(released.second, "mini@v1.1.0", host="127.0.0.1", port=free_port)
    process = serve(
        released.second, [fake_vllm(sane=True), *command[1:]], host="127.0.0.1", port=free_port
    )
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/health", timeout=5) as response:
            assert response.status == 200
    finally:
        process.terminate()
        process.wait(10)


def test_a_server_that_answers_otherwise_is_stopped(released, fake_vllm, free_port):
    command = serve_command(released.second, "mini@v1.1.0", host="127.0.0.1", port=free_port)
    with pytest.raises(UserError, match="serves another model"):
        serve(
            released.second, [fake_vllm(sane=False), *command[1:]], host="127.0.0.1", port=free_port
        )
    with pytest.raises(OSError, match=r"refused|Connection"):
        urllib.request.urlopen(f"http://127.0.0.1:{free_port}/health", timeout=5)


def test_a_server_that_ends_at_once_is_said(released):
    with pytest.raises(UserError, match="vllm ended with 3"):
        serve(
            released.second,
            [sys.executable, "-c", "raise SystemExit(3)", "--served-model-name", "x"],
            host="127.0.0.1",
            port=1,
        )


@pytest.fixture
def hub():
    """The stand-in of `tests.hub_server`."""
    made, server = hub_server.started()
    yield made
    server.shutdown()
    server.server_close()


def pushed(released, hub, version):
    """The command as a user runs it, with the hub's address and a token by environment."""
    environment = hub_server.environment(hub)
    done = subprocess.run(
        [sys.executable, "-m", "posttrain", "release", "push", f"mini@{version}", "someone/mini"],
        cwd=released.project.root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_is_uploaded_is_private_tagged_verifies_and_loads(released, hub, tmp_path):
    from huggingface_hub import snapshot_download
    from transformers import AutoModelForCausalLM, AutoTokenizer

    pushed(released, hub, "v1.0.0")
    pushed(released, hub, "v1.1.0")
    assert pushed(released, hub, "v1.1.0") == "someone/mini: v1.1.0 is there already\n"
    there = hub.model("someone/mini")
    assert there.private
    assert [*there.tags] == ["v1.0.0", "v1.1.0"]
    assert any(f"posttrain/{__version__}" in each for each in hub.agents)
    place = tmp_path / "fetched"
    snapshot_download(
        "someone/mini", revision=there.tags["v1.1.0"], local_dir=place, endpoint=hub.endpoint
    )
    shutil.rmtree(place / ".cache")
    assert verify_path(place, released.key) == []
    assert AutoModelForCausalLM.from_pretrained(place).num_parameters() > 0
    assert len(AutoTokenizer.from_pretrained(place)) == 300
    first = set(there.commits[there.tags["v1.0.0"]])
    assert first == {
        each.relative_to(released.first).as_posix()
        for each in released.first.rglob("*")
        if each.is_file()
    }
