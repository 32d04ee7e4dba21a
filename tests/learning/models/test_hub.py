"""Models by name, from a stand-in for the hub that serves one model at one commit."""

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from posttrain.learning.models.load import load_policy, save_policy, weights_digest

COMMIT = "c" * 40


def hub_of(folder):
    """A handler that knows the files of `folder` as org/tiny at COMMIT, and one pickle beside."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    listing = {
        "id": "org/tiny",
        "sha": COMMIT,
        "siblings": [{"rfilename": name} for name in [*files, "pytorch_model.bin"]],
    }
    answers = {f"/org/tiny/resolve/{COMMIT}/{name}": body for name, body in files.items()}
    answers[f"/api/models/org/tiny/revision/{COMMIT}"] = json.dumps(listing).encode()
    tree = [
        {"type": "file", "path": name, "oid": "b" * 40, "size": len(body)}
        for name, body in files.items()
    ]
    answers[f"/api/models/org/tiny/tree/{COMMIT}"] = json.dumps(tree).encode()

    class Hub(http.server.BaseHTTPRequestHandler):
        asked: list[str] = []

        def do_GET(self):
            path = self.path.partition("?")[0]
            self.asked.append(path)
            body = answers.get(path, b"")
            missing = "RevisionNotFound" if "org/tiny" in path else "RepoNotFound"
            self.send_response(200 if body else 404)
            headers = {"ETag": f'"{hash(path)}"', "X-Repo-Commit": COMMIT} if body else {}
            headers["X-Error-Code"] = "" if body else missing
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_):
            pass

    return Hub


PROGRAM = """
import sys
from pathlib import Path
from posttrain.stage.errors import UserError
from posttrain.learning.models.imports import fetch_model
try:
    print(fetch_model(sys.argv[1], revision=sys.argv[2], cache=Path(sys.argv[3])))
except UserError as error:
    print(error)
"""


@pytest.fixture
def fetch(tmp_path):
    """Fetch in a process that knows no hub but `endpoint`, as the library reads it at import."""

    def run(endpoint, name, revision=COMMIT, *, offline="0"):
        env = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home")}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, name, revision, str(tmp_path / "cache")],
            env={**env, "HF_HUB_OFFLINE": offline, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    return run


@pytest.mark.slow
def test_a_model_by_name_is_its_files_and_what_is_not_there_is_named(
    fetch, model, tokenizer, tmp_path
):
    save_policy(model, tokenizer, tmp_path / "saved")
    handler = hub_of(tmp_path / "saved")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        folder = fetch(endpoint, "org/tiny")
        unknown_revision = fetch(endpoint, "org/tiny", "d" * 40)
        unknown_name = fetch(endpoint, "org2/other")
    finally:
        server.shutdown()
    assert weights_digest(load_policy(Path(folder)).model) == weights_digest(model)
    assert not any("pytorch_model.bin" in path for path in handler.asked), "a pickle was fetched"
    assert unknown_revision == (
        f"model 'org/tiny' at {'d' * 40}: the hub knows the model but not this commit; "
        "take one from the model's page under 'Files and versions'"
    )
    assert unknown_name.startswith(f"model 'org2/other' at {COMMIT}: the hub has no such model, or")


@pytest.mark.slow
def test_without_a_network_the_sentence_says_what_was_wanted_and_the_way_round(fetch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        sentence = fetch(f"http://127.0.0.1:{unused.getsockname()[1]}", "org/tiny")
    assert sentence.startswith(f"model 'org/tiny' at {COMMIT}: http://127.0.0.1")
    assert sentence.endswith(
        "without a network, download the model elsewhere and give its folder as path"
    )


@pytest.mark.slow
def test_the_hub_in_offline_mode_is_what_the_users_own_cache_holds(fetch, tmp_path):
    sentence = fetch("http://127.0.0.1:1", "org/tiny", offline="1")
    assert sentence.startswith(f"model 'org/tiny' at {COMMIT}: cannot be fetched: ")
    assert "without HF_HUB_OFFLINE where that is set" in sentence
    kept = tmp_path / "home" / "hub" / "models--org--tiny" / "snapshots" / COMMIT
    kept.mkdir(parents=True)
    (kept / "config.json").write_text("{}")
    assert fetch("http://127.0.0.1:1", "org/tiny", offline="1") == str(kept)
