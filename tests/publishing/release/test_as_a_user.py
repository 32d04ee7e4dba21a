"""The commands as processes, as a user starts them: two at once, in another environment, away."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from posttrain.publishing.release.tags import promotions

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(released, tmp_path):
    return released.project.copy(tmp_path / "copy")


def started(project, *arguments, python=sys.executable, cwd=None, **environment):
    """A command that runs."""
    given = {**os.environ, "POSTTRAIN_TRACKING": "off", "POSTTRAIN_KEYS": str(project.keys)}
    given.pop("POSTTRAIN_LEDGER", None)
    return subprocess.Popen(
        [python, "-m", "posttrain", "release", *map(str, arguments)],
        cwd=cwd or project.root,
        env={**given, "COLUMNS": "250", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(process, *, code=0):
    """What a command said, which is no traceback."""
    said, _ = process.communicate(timeout=300)
    assert process.returncode == code, said
    assert "Traceback" not in said
    return said


@pytest.mark.timeout(600)
def test_two_promotions_at_once_are_one_after_the_other(project):
    ended(started(project, "promote", "mini@v1.0.0", "--environment", "prod"))
    both = [
        started(project, "promote", "mini@v1.1.0", "--environment", "prod"),
        started(project, "rollback", "mini", "--environment", "prod", "--to", "v1.1.0"),
    ]
    done = [(process.communicate(timeout=300)[0], process.returncode) for process in both]
    assert not any("Traceback" in said for said, _ in done)
    # The promotion may come second, and then finds it done; whoever waits too long says so.
    moved = [said for said, code in done if code == 0]
    assert moved
    for said, code in done:
        assert code == 0 or re.search("in prod already|another release command", said), said
    history = promotions(project.root, "mini", "prod")
    assert [each.number for each in history] == list(range(1, 2 + len(moved)))
    assert str(history[-1].version) == "v1.1.0"
    assert not (project.root / ".posttrain/release-pending.json").exists()


def test_a_difference_is_listed_and_a_hub_that_is_away_is_a_sentence(project, tmp_path):
    listed = started(project, "diff", "mini@v1.0.0", "mini@v1.1.0")
    pushed = started(
        project,
        "push",
        "mini@v1.1.0",
        "me/mini",
        HF_ENDPOINT="http://127.0.0.1:9",
        HF_TOKEN="hf_secret",
        HF_HUB_DISABLE_TELEMETRY="1",
    )
    said = ended(listed)
    assert re.search(r"parameter sft.steps +2 +3", said)
    said = ended(pushed, code=2)
    assert "cannot upload to me/mini" in said
    assert "hf_secret" not in said


FAKE_VLLM = """#!PYTHON
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
arguments = dict(zip(sys.argv[3::2], sys.argv[4::2]))
stored = json.load(open(sys.argv[2] + "/release/example.json"))
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def do_GET(self):
        self.reply({})
    def do_POST(self):
        self.reply({"choices": [{"text": stored["completion"]}]})
        self.server.answered = True
    def reply(self, body):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())
server = HTTPServer((arguments["--host"], int(arguments["--port"])), Handler)
server.answered = False
while not server.answered:
    server.handle_request()
"""


def test_a_release_is_served_and_checked(project, tmp_path, free_port):
    folder = tmp_path / "bin"
    folder.mkdir()
    vllm = folder / "vllm"
    vllm.write_text(FAKE_VLLM.replace("PYTHON", sys.executable))
    vllm.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    said = ended(started(project, "serve", "mini@v1.1.0", "--port", free_port, PATH=path))
    assert "vllm serve " in said
    assert f"mini@v1.1.0 answers at http://127.0.0.1:{free_port}/v1" in said


@pytest.fixture
def other_environment(tmp_path):
    """Another environment: an interpreter with a prefix and scripts of its own, and this library.

    There is no network here to install from, so its packages are the same files as ours, by a
    path; what differs is the prefix, the home, the caches and every variable of ours.
    """
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    packages = Path(
        sysconfig.get_path("purelib", "venv", {"base": str(place), "platbase": str(place)})
    )
    ours = Path(sysconfig.get_path("purelib"))
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({str(ours)!r})\n{ROOT}\n")
    return place


@pytest.mark.timeout(600)
def test_a_release_is_rebuilt_from_its_archive_alone_in_another_environment(
    released, other_environment, tmp_path
):
    """Neither project, nor repository, nor ledger, nor cache of ours: an archive and a key."""
    away = tmp_path / "away"
    away.mkdir()
    archive = away / "received.tar"
    archive.write_bytes((released.second.parent / "mini-v1.1.0.tar").read_bytes())
    key = away / "release.pub"
    key.write_bytes((released.project.keys / "release.pub").read_bytes())
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(away),
        "HF_TOKEN": "hf_secret",
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    done = subprocess.run(
        [other_environment / "bin/python", "-m", "posttrain", "release", "rebuild", archive,
         "--key", key, "--into", away / "made"],
        cwd=away,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Rebuilt at level L0: " in done.stdout
    report = json.loads((away / "made/rebuild.json").read_text())
    assert report["agrees"]
    policy = [each for each in report["comparisons"] if each["what"] == "data/sft/policy"]
    assert [each["agrees"] for each in policy] == [True]
    # The code that ran was the archive's, and it was given no secret.
    assert (away / "made/posttrain/__init__.py").is_file()
    assert not [
        path
        for path in (away / "made/.posttrain").rglob("*")
        if path.is_file() and b"hf_secret" in path.read_bytes()
    ]
