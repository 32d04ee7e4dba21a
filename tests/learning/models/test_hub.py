"""Models by name, from a stand-in for the hub that serves one model at one commit."""

import hashlib
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


def etag(body):
    """Git's name of a file, as the hub gives it of files that are not large."""
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()


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
        {"type": "file", "path": name, "oid": etag(body), "size": len(body)}
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
            headers = {"ETag": f'"{etag(body)}"', "X-Repo-Commit": COMMIT} if body else {}
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
from posttrain.stage.errors import UserError
from posttrain.learning.models.hub import fetch_model
try:
    print(fetch_model(sys.argv[1], revision=sys.argv[2]))
except UserError as error:
    print(error)
"""


@pytest.fixture
def fetch(tmp_path):
    """Fetch in a process that knows no hub but `endpoint`, as the library reads it at import."""

    def run(endpoint, name, revision=COMMIT, *, offline="0"):
        env = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home")}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, name, revision],
            env={**env, "HF_HUB_OFFLINE": offline, "HF_HUB_DISABLE_PROGRESS_BARS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    return run


@pytest.fixture
def served(model, tokenizer, tmp_path):
    """The address of a hub with the tiny model, and what it was asked for."""
    save_policy(model, tokenizer, tmp_path / "saved")
    handler = hub_of(tmp_path / "saved")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", handler.asked
    server.shutdown()
    server.server_close()


@pytest.fixture
def nobody():
    """An address at which nothing answers."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unused.getsockname()[1]}"


@pytest.mark.slow
def test_a_model_by_name_is_its_files_and_what_is_not_there_is_named(fetch, served, model):
    endpoint, asked = served
    folder = fetch(endpoint, "org/tiny")
    unknown_revision = fetch(endpoint, "org/tiny", "d" * 40)
    unknown_name = fetch(endpoint, "org2/other")
    assert weights_digest(load_policy(Path(folder)).model) == weights_digest(model)
    assert not any("pytorch_model.bin" in path for path in asked), "a pickle was fetched"
    assert unknown_revision == (
        f"model 'org/tiny' at {'d' * 40}: the hub knows the model but not this commit; "
        "take one from the model's page under 'Files and versions'"
    )
    assert unknown_name.startswith(f"model 'org2/other' at {COMMIT}: the hub has no such model, or")


@pytest.mark.slow
def test_what_was_fetched_lies_in_the_users_cache_and_is_not_fetched_again(
    fetch, served, nobody, tmp_path
):
    endpoint, asked = served
    folder = fetch(endpoint, "org/tiny")
    assert folder == str(tmp_path / "home/hub/models--org--tiny/snapshots" / COMMIT)
    downloads = [path for path in asked if "/resolve/" in path]
    assert downloads
    for again in (
        fetch(endpoint, "org/tiny"),
        fetch(endpoint, "org/tiny", offline="1"),
        fetch(nobody, "org/tiny"),
    ):
        assert again == folder
    assert [path for path in asked if "/resolve/" in path] == downloads


@pytest.mark.slow
def test_a_cache_that_was_altered_or_is_not_whole_is_refused(fetch, served, nobody):
    endpoint, _ = served
    weights = Path(fetch(endpoint, "org/tiny")) / "model.safetensors"
    blob = weights.resolve()
    kept = blob.read_bytes()
    blob.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    assert fetch(endpoint, "org/tiny", offline="1") == (
        f"model 'org/tiny' at {COMMIT}: model.safetensors is not as it was downloaded;"
        f" delete {blob} and run again"
    )
    blob.unlink()
    weights.unlink()
    assert "cannot be fetched: " in fetch(endpoint, "org/tiny", offline="1")
    assert "does not answer" in fetch(nobody, "org/tiny")
    # As it was said: with a network the one file is fetched anew.
    assert (Path(fetch(endpoint, "org/tiny")) / "model.safetensors").read_bytes() == kept


@pytest.mark.slow
def test_without_a_network_the_sentence_says_what_was_wanted_and_the_way_round(fetch, nobody):
    sentence = fetch(nobody, "org/tiny")
    assert sentence.startswith(f"model 'org/tiny' at {COMMIT}: http://127.0.0.1")
    assert sentence.endswith(
        "without a network, download the model elsewhere and give its folder as path"
    )


@pytest.mark.slow
def test_offline_a_model_that_others_fetched_in_part_is_refused(fetch, tmp_path):
    """As by a library that wanted the configuration alone, and so listed nothing."""
    sentence = fetch("http://127.0.0.1:1", "org/tiny", offline="1")
    assert sentence.startswith(f"model 'org/tiny' at {COMMIT}: cannot be fetched: ")
    assert "without HF_HUB_OFFLINE where that is set" in sentence
    kept = tmp_path / "home" / "hub" / "models--org--tiny" / "snapshots" / COMMIT
    kept.mkdir(parents=True)
    (kept / "config.json").write_text("{}")
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    for missing, file, text in (
        ("model.safetensors", "model.safetensors.index.json", json.dumps({"weight_map": shards})),
        (shards["a"], shards["a"], ""),
        (shards["b"], shards["b"], ""),
    ):
        said = fetch("http://127.0.0.1:1", "org/tiny", offline="1")
        assert said.startswith(f"model 'org/tiny' at {COMMIT}: {kept} has no {missing}; where")
        (kept / file).write_text(text)
    assert fetch("http://127.0.0.1:1", "org/tiny", offline="1") == str(kept)


FLOW = """
from tasks.import_model import TASK
def declare(build):
    build.stage("import_model", TASK)
"""
RECIPE = """
flow: FLOW
format: 3
run: {threads: 1, retries: 0}
import_model: {name: org/tiny, revision: COMMIT}
"""


@pytest.mark.slow
def test_a_stage_takes_the_model_from_a_cache_of_the_users_for_every_key(served, tmp_path):
    """Held by its isolation: HF_HUB_CACHE alone names the place, and offline nothing is asked."""
    endpoint, asked = served
    root, name = tmp_path / "project", f"hubflow{os.getpid()}"
    (root / name).mkdir(parents=True)
    (root / name / "__init__.py").touch()
    (root / name / "mini.py").write_text(FLOW)
    (root / "tasks").symlink_to(Path(__file__).parents[3] / "tasks")
    subprocess.run(["git", "init", "-q", root], check=True)
    (root / ".dvc").mkdir()
    (root / ".dvc/config").write_text("[core]\n    analytics = false\n")
    (root / "recipe.yaml").write_text(
        RECIPE.replace("FLOW", f"{name}.mini").replace("COMMIT", COMMIT)
    )

    def run(*given, offline):
        environment = {
            **os.environ,
            "POSTTRAIN_TRACKING": "off",
            "HF_ENDPOINT": endpoint,
            "HF_HUB_CACHE": str(tmp_path / "mine/hub"),
            "HF_HUB_OFFLINE": offline,
        }
        environment.pop("POSTTRAIN_LEDGER", None)
        done = subprocess.run(
            [sys.executable, "-m", "posttrain", "run", "--local", *given],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads((root / "data/import_model/report.json").read_text())["dtype"]

    assert run(offline="0") == "float32"
    downloads = len(asked)
    assert run("--set", "import_model.dtype=bfloat16", offline="1") == "bfloat16"
    assert len(asked) == downloads
    assert (tmp_path / "mine/hub/models--org--tiny/snapshots" / COMMIT).is_dir()
    assert not [*(root / ".posttrain").rglob("models--org--tiny")]
