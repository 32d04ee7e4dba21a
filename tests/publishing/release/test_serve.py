"""The serving command, the check of a served completion, and the upload.

vLLM is not here: a small HTTP server stands in for it (health, and completions by token ids), and
a folder stands in for the hub. What is tested is our side of both.
"""

import shlex
import shutil
import stat
import sys
import urllib.request
from pathlib import Path

import pytest

from posttrain.publishing.release.distribute import push_to_hub, serve, serve_command
from posttrain.publishing.release.verify import verify_path
from posttrain.stage.errors import UserError

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


class FolderHub:
    """The hub as a folder: repositories are its sub-folders."""

    def __init__(self, root):
        self.root = root

    def create_repo(self, repo_id, *, private, exist_ok):
        assert private
        (self.root / repo_id).mkdir(parents=True, exist_ok=exist_ok)

    def upload_folder(self, *, repo_id, folder_path, commit_message, delete_patterns):
        assert delete_patterns == "*"
        shutil.rmtree(self.root / repo_id)
        shutil.copytree(folder_path, self.root / repo_id)
        return f"{self.root}/{repo_id}"


def test_what_is_uploaded_verifies_and_loads(released, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    hub = FolderHub(tmp_path)
    push_to_hub(released.first, "someone/mini", hub)
    push_to_hub(released.second, "someone/mini", hub)
    there = tmp_path / "someone/mini"
    assert verify_path(there, released.key) == []
    assert AutoModelForCausalLM.from_pretrained(there).num_parameters() > 0
    assert len(AutoTokenizer.from_pretrained(there)) == 300
    card = (there / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")


def test_an_upload_that_fails_is_one_sentence(released):
    class Broken(FolderHub):
        def create_repo(self, repo_id, *, private, exist_ok):
            raise OSError("no network\nand much more")

    with pytest.raises(UserError, match=r"cannot upload to a/b: no network; log in"):
        push_to_hub(released.first, "a/b", Broken(Path()))


def test_the_stub_has_the_hubs_own_signature():
    """The folder stub must not drift from the real client."""
    import inspect

    from huggingface_hub import HfApi

    upload = inspect.signature(HfApi.upload_folder).parameters
    assert {"repo_id", "folder_path", "commit_message", "delete_patterns"} <= upload.keys()
    assert {"repo_id", "private", "exist_ok"} <= inspect.signature(
        HfApi.create_repo
    ).parameters.keys()
