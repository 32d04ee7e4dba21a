"""`posttrain up` with real servers: what a user and the person on call do, and what they then see.

One long story, since starting the servers takes longer than anything that is done with them.
"""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from posttrain.operations.services.process import alive


@pytest.fixture
def webhook():
    """A place on the net that takes notices."""
    heard = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self):
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", heard
    server.shutdown()


def holder_of(file):
    """The process that has a file open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if link.readlink() == file.resolve():
                return int(link.parts[2])
    raise AssertionError(f"nobody holds {file}")


def hangs(up):
    """A stage whose process is stopped for good, so that its heart beats no more."""
    up.schedule("add", ".", "--name", "hung", "--cron", "0 2 1 1 *", "--retries", "0",
                "--set", "second.mood=wait", "--set", "second.amount=1000",
                "--notify-command", "tee hung.json")  # fmt: skip
    up.schedule("run-now", "hung")
    scratch = up.root / ".posttrain/worktrees/hung/tree/.posttrain/scratch"
    (waiting,) = up.wait(lambda _: list(scratch.glob("root-second-*/waiting")))
    os.kill(holder_of(waiting.parent / ".lock"), signal.SIGSTOP)


def is_found(up, story):
    """It was stopped a minute later, by the run that the worker started, and somebody was told."""
    (tick,) = up.wait(story.over("failed", schedule="hung"))
    said = "stage 'second' failed: it sent no heartbeat for 60 s and was stopped"
    assert tick.reason.startswith(said)
    assert 60 < tick.ended - tick.started < 120
    assert json.loads((up.root / "hung.json").read_text())["error"] == tick.reason
    assert story.flow_run(up, tick, "Failed")


def a_failure_is_heard(up, webhook, story):
    """It is tried again by the policy, then told once: to the webhook, and to the command."""
    address, heard = webhook
    up.schedule("add", ".", "--name", "broken", "--cron", "0 2 1 1 *", "--retries", "1",
                "--retry-seconds", "0.5", "--set", "second.mood=fail", "--notify-url", address,
                "--notify-command", "tee -a told.json")  # fmt: skip
    up.schedule("run-now", "broken")
    (tick,) = up.wait(story.over("failed", schedule="broken"))
    assert tick.attempt == 2
    assert tick.reason.startswith("stage 'second' failed: RuntimeError: told to fail")
    told = json.loads((up.root / "told.json").read_text())
    assert told["schedule"] == "broken"
    assert told["attempts"] == 2
    deadline = time.monotonic() + 30
    while not heard and time.monotonic() < deadline:
        time.sleep(0.2)
    assert heard == [told]
    assert story.flow_run(up, tick, "Failed")


def interrupted(up, story):
    """The server restarts under a run, the worker dies under it, all go down: it goes on, once."""
    up.schedule("add", ".", "--name", "long", "--cron", "0 2 1 1 *", "--retry-seconds", "0.5",
                "--set", "second.mood=wait", "--set", "second.amount=100",
                "--release", "toy")  # fmt: skip
    up.schedule("run-now", "long")
    scratch = up.root / ".posttrain/worktrees/long/tree/.posttrain/scratch"

    def waits(_journal):
        return list(scratch.glob("root-second-*/waiting"))

    up.wait(waits)
    os.kill(up.pid("prefect"), signal.SIGKILL)
    os.kill(up.pid("worker"), signal.SIGKILL)
    time.sleep(3)
    up.wait(lambda _: alive(up.folder, "worker") and alive(up.folder, "prefect"))
    with up.journal() as journal:
        (tick,) = journal.history("long")
        assert (tick.status, tick.attempt) == ("running", 1)
    assert "supervisor" in up.down()
    with up.journal() as journal:
        assert journal.history("long")[0].status == "waiting"
    waits(None)[0].unlink()
    up.up()
    (waiting,) = up.wait(waits)
    (waiting.parent / "go").touch()
    (tick,) = up.wait(story.over("succeeded", schedule="long"))
    # `first` had been made by the attempt that was stopped.
    assert tick.reason.startswith("2 of 3 stages ran; no release candidate: ")
    assert tick.attempt == 1


def paused_by_hand(up, story):
    """A pause in Prefect's pages is taken over, and so is its end."""
    body = {"deployments": {"name": {"any_": ["nightly"]}}}
    (deployment,) = up.prefect("/deployments/filter", body)
    for paused in (True, False):
        verb = "pause_deployment" if paused else "resume_deployment"
        up.prefect(f"/deployments/{deployment['id']}/{verb}", {})
        up.wait(lambda journal, paused=paused: journal.schedule("nightly").paused == paused)
    up.schedule("add", ".", "--name", "passing", "--cron", "0 2 1 1 *")
    body = {"deployments": {"name": {"any_": ["passing"]}}}
    up.wait(lambda _: len(up.prefect("/deployments/filter", body)) == 1)
    up.schedule("remove", "passing")
    up.wait(lambda _: up.prefect("/deployments/filter", body) == [])


def restored(up, services, place, story):
    """The commands of docs/operations.md, taken while all is up, into a clone elsewhere."""
    backup = place / "backup"
    backup.mkdir()
    for name in ("ledger", "schedules", "mlflow", "prefect/prefect"):
        with (
            sqlite3.connect(up.root / ".posttrain" / f"{name}.db") as source,
            sqlite3.connect(backup / f"{name.rpartition('/')[2]}.db") as target,
        ):
            source.backup(target)
    told = up.schedule("history", "nightly").stdout
    up.down()
    clone = place / "clone"
    subprocess.run(["git", "clone", "-q", str(up.root), str(clone)], check=True)
    state = clone / ".posttrain"
    (state / "prefect").mkdir(parents=True)
    for name in ("ledger", "schedules", "mlflow"):
        shutil.copy(backup / f"{name}.db", state)
    shutil.copy(backup / "prefect.db", state / "prefect")
    shutil.copytree(up.root / ".dvc/cache", clone / ".dvc/cache")
    up.project.root = clone
    up.project.toy.root = clone
    again = services()
    assert again.schedule("history", "nightly").stdout == told
    again.up()
    again.schedule("run-now", "nightly")
    tick = again.wait(story.over("succeeded", count=3))[0]
    # Made elsewhere, known by the ledger, taken from the cache.
    assert tick.reason == "0 of 3 stages ran"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_story_of_a_user(services, webhook, story, tmp_path_factory):
    up = services()
    (up.root / "data.txt").write_text("one")
    up.project.commit()
    story.first_run(up)
    hangs(up)
    story.moved_and_not(up)
    paused_by_hand(up, story)
    a_failure_is_heard(up, webhook, story)
    is_found(up, story)
    interrupted(up, story)
    restored(up, services, tmp_path_factory.mktemp("elsewhere"), story)
