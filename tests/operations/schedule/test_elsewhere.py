"""A Prefect server of one's own: its workers run the work pool, or one process serves the runs."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from posttrain.operations.schedule.journal import journal_location, open_journal


class Elsewhere:
    """A Prefect server as one has it: all of its services on, among them its scheduler."""

    def __init__(self, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        self.api = f"http://127.0.0.1:{port}/api"
        self.environment = {
            **os.environ,
            "PREFECT_HOME": str(folder / "home"),
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "5",
            "DO_NOT_TRACK": "1",
            "POSTTRAIN_TRACKING": "off",
        }
        self.folder = folder
        self.started = []
        self.start(folder, "prefect", "server", "start", "--host", "127.0.0.1", "--port", port)

    def start(self, place, *command, **more):
        with (self.folder / f"{'-'.join(command[:2])}.log").open("ab") as log:
            self.started.append(
                subprocess.Popen(
                    [sys.executable, "-m", *command],
                    cwd=place,
                    env={**self.environment, **more},
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
        return self.started[-1]

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.api + path, data, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or b"null")

    def wait(self, condition, seconds=150):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if value := condition():
                    return value
            except OSError:
                pass
            time.sleep(0.3)
        logs = {log.name: log.read_text()[-2000:] for log in self.folder.glob("*.log")}
        raise AssertionError(json.dumps(logs, indent=1).replace("\\n", "\n"))

    def stop(self, process):
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    made = Elsewhere(tmp_path_factory.mktemp("prefect"))
    made.wait(lambda: made.ask("/health"))
    yield made
    for process in reversed(made.started):
        if process.poll() is None:
            made.stop(process)


def declare(project, elsewhere, name):
    done = project.toy.cli(
        "schedule", "add", ".", "--name", name, "--cron", "0 2 1 * *", "--retries", "1",
        "--retry-seconds", "0.5", env=elsewhere.environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def ended(project, elsewhere, count):
    """The ticks of a project, once so many are over."""

    def look():
        with open_journal(journal_location(project.root)) as journal:
            rows = journal.history()
        over = [row for row in rows if row.status not in ("waiting", "running") and row.settled]
        return rows if len(over) >= count else None

    return elsewhere.wait(look)


def run_now(project, elsewhere, name):
    assert project.toy.cli("schedule", "run-now", name, env=elsewhere.environment).returncode == 0


def shown(elsewhere, tick, state):
    """Prefect says the same of the tick's flow run, a moment after the journal."""
    body = {"flow_runs": {"id": {"any_": [tick.flow_run_id]}}}
    elsewhere.wait(lambda: elsewhere.ask("/flow_runs/filter", body)[0]["state_name"] == state, 30)


def laid_out(elsewhere, name):
    body = {
        "deployments": {"name": {"any_": [name]}},
        "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
    }
    return elsewhere.ask("/flow_runs/filter", body)


def gone(mark):
    """Nobody makes the mark again: the stage that did has ended."""
    mark.unlink(missing_ok=True)
    time.sleep(0.5)
    return not mark.exists()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_prefects_own_worker_runs_what_prefect_yaml_deploys(project, quiet, elsewhere):
    declare(project, elsewhere, "pooled")
    place = {"POSTTRAIN_PROJECT": str(project.root)}
    pool = [sys.executable, "-m", "prefect", "work-pool", "create", "posttrain", "-t", "process"]
    deploy = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"]
    for command in (pool, deploy):
        done = subprocess.run(
            command, cwd=project.root, env=elsewhere.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    worker = elsewhere.start(
        project.root.parent, "prefect", "worker", "start", "--pool", "posttrain", **place
    )
    keeper = elsewhere.start(project.root, "posttrain", "worker", "--look-after")
    run_now(project, elsewhere, "pooled")
    (tick,) = ended(project, elsewhere, 1)
    assert (tick.status, tick.reason) == ("succeeded", "3 of 3 stages ran")
    shown(elsewhere, tick, "Completed")
    # A stage that fails is tried again in the same flow run, and is told of once.
    project.toy.recipe("second: {mood: fail}")
    project.commit()
    run_now(project, elsewhere, "pooled")
    tick, _ = ended(project, elsewhere, 2)
    assert (tick.status, tick.attempt) == ("failed", 2)
    assert tick.reason.startswith("stage 'second' failed: RuntimeError: told to fail")
    shown(elsewhere, tick, "Failed")
    # Prefect's scheduler works as well: each coming month once, whoever laid it out.
    coming = elsewhere.wait(
        lambda: len(laid_out(elsewhere, "pooled")) > 1 and laid_out(elsewhere, "pooled")
    )
    times = [run["expected_start_time"] for run in coming]
    assert len(set(times)) == len(times)
    for process in (worker, keeper):
        elsewhere.stop(process)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_served_runs_need_no_pool_and_go_on_where_they_were_stopped(project, quiet, elsewhere):
    declare(project, elsewhere, "served")
    serving = elsewhere.start(project.root, "posttrain", "schedule", "serve")
    run_now(project, elsewhere, "served")
    (tick,) = ended(project, elsewhere, 1)
    assert (tick.status, tick.reason) == ("succeeded", "3 of 3 stages ran")
    shown(elsewhere, tick, "Completed")
    body = {"deployments": {"name": {"any_": ["served"]}}}
    (deployment,) = elsewhere.ask("/deployments/filter", body)
    assert deployment["work_pool_name"] is None
    assert deployment["entrypoint"] == "posttrain.operations.schedule.flow.scheduled"
    project.toy.recipe("second: {mood: wait, amount: 5}")
    project.commit()
    run_now(project, elsewhere, "served")
    scratch = project.root / ".posttrain/worktrees/served/tree/.posttrain/scratch"
    (waiting,) = elsewhere.wait(lambda: list(scratch.glob("root-second-*/waiting")))
    elsewhere.stop(serving)
    with open_journal(journal_location(project.root)) as journal:
        stopped = journal.history()[0]
        assert stopped.status in ("waiting", "running", "crashed"), journal.story(stopped)
    elsewhere.wait(lambda: gone(waiting))
    again = elsewhere.start(project.root, "posttrain", "schedule", "serve")
    (waiting,) = elsewhere.wait(lambda: list(scratch.glob("root-second-*/waiting")))
    (waiting.parent / "go").touch()
    tick, _ = ended(project, elsewhere, 2)
    assert (tick.status, tick.reason) == ("succeeded", "2 of 3 stages ran")
    elsewhere.stop(again)
