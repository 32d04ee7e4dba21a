"""`posttrain up` with real servers: what a user and the person on call do, and what they then see.

One long story, since starting the servers takes longer than anything that is done with them.
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from posttrain.services.process import alive


def over(status, *, schedule="nightly", count=1):
    """True once `count` ticks of a schedule ended so."""

    def condition(journal):
        rows = [row for row in journal.history(schedule) if row.status == status and row.settled]
        return rows if len(rows) >= count else None

    return condition


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


def flow_run(up, tick, state):
    """The flow run of a tick once Prefect has it in this state."""
    (run,) = up.prefect("/flow_runs/filter", {"flow_runs": {"id": {"any_": [tick.flow_run_id]}}})
    return run if run["state_name"] == state else None


def first_run(up):
    """Declared while nothing is up, run once by hand; both servers show it as one expects."""
    added = up.schedule("add", ".", "--name", "nightly", "--cron", "0 2 1 1 *",
                        "--timezone", "Europe/Berlin", "--only-if-moved",
                        "--watch", "file:data.txt", "--retry-seconds", "0.5")  # fmt: skip
    assert "-01-01 02:00 Europe/Berlin" in added.stdout
    assert "no worker is up here" in added.stdout
    assert "cron: 0 2 1 1 *" in (up.root / "prefect.yaml").read_text()
    up.up()
    up.schedule("run-now", "nightly")
    (tick,) = up.wait(over("succeeded"))
    assert tick.reason == "3 of 3 stages ran"
    (deployment,) = up.prefect("/deployments/filter", {})
    assert (deployment["name"], deployment["status"]) == ("nightly", "READY")
    assert deployment["schedules"][0]["schedule"]["cron"] == "0 2 1 1 *"
    assert deployment["schedules"][0]["schedule"]["timezone"] == "Europe/Berlin"
    flow_runs = up.prefect("/flow_runs/filter", {})
    done = {run["name"]: run for run in flow_runs if run["state_type"] == "COMPLETED"}
    coming = [run for run in flow_runs if run["state_type"] == "SCHEDULED"]
    assert len(coming) == 1
    assert coming[0]["expected_start_time"].endswith("-01-01T01:00:00Z")
    tags = {"recipe:chain", "schedule:nightly"}
    assert all(tags <= set(run["tags"]) for run in flow_runs)
    assert tick.run_id in done
    assert {tick.flow_run_id} == {run["id"] for run in done.values()} - {done[tick.run_id]["id"]}
    (pool,) = up.prefect("/work_pools/filter", {})
    assert (pool["name"], pool["status"]) == ("posttrain", "READY")
    (experiment,) = [
        each
        for each in up.mlflow("/experiments/search", {"max_results": 10})["experiments"]
        if each["name"] == "chain"
    ]
    runs = up.mlflow("/runs/search", {"experiment_ids": [experiment["experiment_id"]]})["runs"]
    assert {run["info"]["run_name"] for run in runs} == {"chain", "first", "second", "third"}
    assert {run["info"]["status"] for run in runs} == {"FINISHED"}


def moved_and_not(up):
    """Nothing moved: over in under a second. A file, or a parameter in a new commit: it runs."""
    with up.journal() as journal:
        journal.add("nightly", time.time() - 3, kind="asked", status="waiting", reason="test")
    (tick,) = up.wait(over("unchanged"))
    assert tick.ended - tick.started < 1
    assert "no input moved since the run of " in tick.reason
    # The journal is written first; Prefect hears of it in the same breath.
    run = up.wait(lambda _: flow_run(up, tick, "Unchanged"))
    assert run["total_run_time"] < 1
    up.project.toy.recipe("second: {amount: 7}")
    (up.root / "data.txt").write_text("two")
    up.project.commit()
    up.project.toy.recipe("second: {amount: 8}")
    with up.journal() as journal:
        journal.add("nightly", time.time(), kind="asked", status="waiting", reason="test")
    tick = up.wait(over("succeeded", count=2))[0]
    assert tick.reason == "2 of 3 stages ran"
    told = up.schedule("history", "nightly", "-v").stdout
    assert "the parameters changed: second.amount 1 -> 7" in told
    assert "the spec changed: commit " in told
    assert "uncommitted edits are left out: recipe.yaml" in told
    assert "file:data.txt moved" in told


def a_failure_is_heard(up, webhook):
    """It is tried again by the policy, then told once: to the webhook, and to the command."""
    address, heard = webhook
    up.schedule("add", ".", "--name", "broken", "--cron", "0 2 1 1 *", "--retries", "1",
                "--retry-seconds", "0.5", "--set", "second.mood=fail", "--notify-url", address,
                "--notify-command", "tee -a told.json")  # fmt: skip
    up.schedule("run-now", "broken")
    (tick,) = up.wait(over("failed", schedule="broken"))
    assert tick.attempt == 2
    assert tick.reason.startswith("stage 'second' failed: RuntimeError: told to fail")
    told = json.loads((up.root / "told.json").read_text())
    assert told["schedule"] == "broken"
    assert told["attempts"] == 2
    deadline = time.monotonic() + 30
    while not heard and time.monotonic() < deadline:
        time.sleep(0.2)
    assert heard == [told]
    assert flow_run(up, tick, "Failed")


def interrupted(up):
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
    (tick,) = up.wait(over("succeeded", schedule="long"))
    # `first` had been made by the attempt that was stopped.
    assert tick.reason.startswith("2 of 3 stages ran; no release candidate: ")
    assert tick.attempt == 1


def paused_by_hand(up):
    """A pause in Prefect's pages is taken over, and so is its end."""
    (deployment,) = up.prefect("/deployments/filter", {})
    for paused in (True, False):
        verb = "pause_deployment" if paused else "resume_deployment"
        up.prefect(f"/deployments/{deployment['id']}/{verb}", {})
        up.wait(lambda journal, paused=paused: journal.schedule("nightly").paused == paused)
    up.schedule("add", ".", "--name", "passing", "--cron", "0 2 1 1 *")
    body = {"deployments": {"name": {"any_": ["passing"]}}}
    up.wait(lambda _: len(up.prefect("/deployments/filter", body)) == 1)
    up.schedule("remove", "passing")
    up.wait(lambda _: up.prefect("/deployments/filter", body) == [])


def restored(up, services, place):
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
    tick = again.wait(over("succeeded", count=2))[0]
    # Made elsewhere, known by the ledger, taken from the cache.
    assert tick.reason == "0 of 3 stages ran"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_the_story_of_a_user(services, webhook, database, request):
    options = []
    if database == "postgres":
        options = ["--database", request.getfixturevalue("postgres_url")]
    up = services(*options)
    (up.root / "data.txt").write_text("one")
    up.project.commit()
    first_run(up)
    moved_and_not(up)
    if database == "sqlite":
        a_failure_is_heard(up, webhook)
        interrupted(up)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_is_done_by_hand_and_what_a_backup_brings_back(services, tmp_path_factory):
    up = services()
    (up.root / "data.txt").write_text("one")
    up.project.commit()
    first_run(up)
    paused_by_hand(up)
    restored(up, services, tmp_path_factory.mktemp("elsewhere"))
