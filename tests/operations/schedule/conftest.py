"""Notes in every database that is here, projects with a commit, and a real server with a worker."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from posttrain.operations.schedule import notes as noting
from posttrain.operations.schedule.keeper import Keeper
from posttrain.operations.schedule.notes import open_notes
from posttrain.operations.schedule.recipes import Schedule, ScheduleConfig
from posttrain.operations.schedule.server import SETTINGS, version_of


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# The ledger's tests have the private PostgreSQL server; conftest files cannot import each other.
_HERE = Path(__file__).parents
_databases = _load("databases", _HERE[2] / "provenance/ledger/conftest.py")
postgres, postgres_url, url = _databases.postgres, _databases.postgres_url, _databases.url
_toys = _load("toys", _HERE[2] / "conftest.py")


def _git(root, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


def _committed(toy):
    ignored = (".posttrain/", "__pycache__/", "data/", ".dvc/config.local", ".dvc/cache/")
    toy.write(".gitignore", "".join(f"{each}\n" for each in ignored))

    def commit(message="change"):
        _git(toy.root, "add", "-A")
        _git(toy.root, "commit", "-q", "-m", message)

    commit()
    return SimpleNamespace(toy=toy, root=toy.root, commit=commit, cli=toy.cli)


@pytest.fixture
def project(toy):
    """The toy project with everything committed; `commit` does it again."""
    return _committed(toy)


@pytest.fixture
def notes(url, tmp_path, monkeypatch):
    """Empty notes, in SQLite and in PostgreSQL."""
    monkeypatch.setenv("POSTTRAIN_SCHEDULES", url if "://" in url else f"sqlite:///{url}")
    with open_notes(tmp_path) as opened:
        yield opened


@pytest.fixture
def declare():
    """Make schedules of the toy recipe."""

    def make(name="s", **fields):
        config = ScheduleConfig.parse({"cron": "* * * * *", **fields}, where="test")
        return Schedule(name, ".", "chain", config)

    return make


@pytest.fixture
def quiet(monkeypatch):
    """No Prefect, MLflow or notes of the user's."""
    theirs = ("PREFECT_", "MLFLOW_", "POSTTRAIN_")
    for name in [name for name in os.environ if name.startswith(theirs)]:
        monkeypatch.delenv(name)


class Remembering:
    """A server as the keeper sees it."""

    def __init__(self):
        self.made, self.flow_runs, self.said = {}, {}, []

    def require_pool(self):
        pass

    def deploy(self, schedule, owner, *, paused):
        clock = SimpleNamespace(cron=schedule.clock.cron, timezone=schedule.clock.timezone)
        self.made[schedule.name] = SimpleNamespace(
            id=f"d-{schedule.name}", name=schedule.name, version=version_of(schedule),
            paused=paused, job_variables=dict(owner),
            schedules=[SimpleNamespace(active=True, schedule=clock)], tags=[],
        )  # fmt: skip

    def pause(self, deployment, *, paused):
        deployment.paused = paused

    def withdraw(self, deployment):
        del self.made[deployment.name]

    def deployments(self):
        return dict(self.made)

    def runs(self, ids):
        active = {k: v for k, v in self.flow_runs.items() if v.state_type.value == "RUNNING"}
        return active | {each: self.flow_runs[each] for each in ids if each in self.flow_runs}

    def runs_between(self, deployment, after, until):
        found = [run for run in self.flow_runs.values() if run.deployment_id == deployment.id]
        dues = {run.expected_start_time.timestamp(): run for run in found}
        return {due: run for due, run in dues.items() if after <= due <= until}

    def lay_out(self, _deployment, schedule, tick):
        return self.add(schedule.name, tick.due).id

    def add(self, name, due, state="SCHEDULED", label="Scheduled"):
        run = SimpleNamespace(
            id=f"{name}-{len(self.flow_runs)}", deployment_id=f"d-{name}", auto_scheduled=True,
            parameters={"schedule": name}, state_name=label,
            expected_start_time=datetime.fromtimestamp(due, UTC),
            state_type=SimpleNamespace(value=state),
            state=SimpleNamespace(message="", timestamp=datetime.now(UTC)),
        )  # fmt: skip
        self.flow_runs[run.id] = run
        return run

    def put(self, run_id, state, label):
        if run_id in self.flow_runs:
            self.flow_runs[run_id].state_type.value = state
            self.flow_runs[run_id].state_name = label
        self.said.append((run_id, state))

    def show(self, run_id, tick):
        if tick.over:
            self.put(run_id, tick.status.upper(), tick.status)
        elif tick.status == "waiting":
            self.put(run_id, "SCHEDULED", "AwaitingRetry")

    def skip(self, run_id, reason):
        self.put(run_id, "CANCELLED", "Skipped")


@pytest.fixture
def desk(tmp_path, declare, quiet):
    """A keeper of one project, with the schedules of a test declared `minutes` ago."""
    with open_notes(tmp_path) as notes:
        lines = []
        made = Keeper(tmp_path, notes, Remembering(), lines.append)

        def restart():
            nonlocal made
            made = Keeper(tmp_path, notes, made.server, lines.append)

        def given(*schedules, minutes=0.0):
            now = time.time
            noting.time.time, begun = (lambda: begun), now() - minutes * 60.0
            try:
                for each in schedules:
                    notes.add(each.name, 0.0, "declared", "", declaration=each.as_text())
            finally:
                noting.time.time = now
            cycle()

        def cycle(*runs):
            made._kept = float("-inf")
            return made.cycle(list(runs))

        yield SimpleNamespace(keeper=made, notes=notes, server=made.server, given=given,
                              cycle=cycle, restart=restart, lines=lines, root=tmp_path,
                              declare=declare)  # fmt: skip


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Lab:
    """A real Prefect server and a real worker for one project."""

    def __init__(self, project):
        self.project, self.root, port = project, project.root, _free_port()
        self.url = f"http://127.0.0.1:{port}/api"
        mine = ("PREFECT_", "MLFLOW_", "POSTTRAIN_")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(mine)} | {
            **SETTINGS,
            "PREFECT_HOME": str(self.root / ".posttrain/prefect"),
            "PREFECT_API_URL": self.url,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "DO_NOT_TRACK": "1",
            "POSTTRAIN_TRACKING": "off",
        }
        self._serve = ("prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port))
        self.server, self.worker = None, None
        (self.root / ".posttrain").mkdir(exist_ok=True)

    def start_server(self):
        self.server = self._start("server", *self._serve)
        self.until(lambda: self.ask("/health", None))

    def start_worker(self):
        self.worker = self._start("worker", "posttrain", "worker")

    def _start(self, name, *command):
        with (self.root / f".posttrain/{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *command], cwd=self.root, env=self.environment,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self, process, number=signal.SIGKILL):
        """End a process, and wait for it."""
        process.send_signal(number)
        process.wait(120)

    def declare(self, **schedules):
        """Declare schedules in the recipe, commit and apply; the worker has them once they show."""
        self.project.toy.recipe(f"schedules: {json.dumps(schedules)}")
        self.project.commit()
        done = self.schedule("apply")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def schedule(self, *arguments):
        return self.project.toy.cli("schedule", *arguments, env=self.environment)

    def ticks(self, name):
        """Ticks of a schedule, oldest first."""
        with open_notes(self.root) as notes:
            return notes.history(name, limit=1000)[::-1]

    def tick(self, name, *statuses, seconds=300):
        """The first tick of a schedule that is in one of the statuses, once there is one."""
        return self.until(
            lambda: next((t for t in self.ticks(name) if t.status in statuses), None), seconds
        )

    def until(self, condition, seconds=300):
        """Wait until a condition holds; its value. A server that hangs is started again."""
        deadline, heard = time.monotonic() + seconds, time.monotonic()
        while time.monotonic() < deadline:
            if value := condition():
                return value
            time.sleep(0.1)
            # As `posttrain up` does.
            if self.server is not None and time.monotonic() - heard > 60:
                if not self.ask("/health", None):
                    self.kill(self.server)
                    self.server = self._start("server", *self._serve)
                heard = time.monotonic()
        raise AssertionError(self.told())

    def told(self):
        """What the worker and the server said last, where the worker stands, and the notes.

        Asked of a worker with SIGUSR1: the threads of one that waits for a server show its client.
        """
        if self.worker is not None and self.worker.poll() is None:
            self.worker.send_signal(signal.SIGUSR1)
            time.sleep(1.0)
        logs = [self.root / f".posttrain/{name}.log" for name in ("server", "worker")]
        parts = [f"the server says it is well: {self.ask('/health', None)}"]
        parts += [f"{log}:\n{log.read_text()[-6000:]}" for log in logs if log.exists()]
        with open_notes(self.root) as notes:
            parts += [f"{tick}" for tick in notes.history(None, limit=10)]
        return "\n".join(parts)

    def ask(self, path, body, method=None):
        """An answer of Prefect's API; None while there is none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"true")
        except (urllib.error.URLError, OSError):
            return None

    def deployment(self, name):
        """A deployment as Prefect has it."""
        return self.ask(f"/deployments/name/posttrain/{name}", None)

    def flow_run(self, tick):
        """The flow run of a tick as Prefect has it."""
        # A server whose database is locked for a moment says so, and is asked again.
        return self.until(lambda: self.ask(f"/flow_runs/{tick.data['flow_run_id']}", None))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """One server and one worker for the tests of a module."""
    with _toys.made_toy(tmp_path_factory.mktemp("lab")) as toy:
        made = Lab(_committed(toy))
        made.start_server()
        made.start_worker()
        yield made
        for process in (made.worker, made.server):
            if process.poll() is None:
                made.kill(process, signal.SIGTERM)


@pytest.fixture
def neighbor(lab, tmp_path_factory):
    """Another project with a worker of its own on the same server."""
    with _toys.made_toy(tmp_path_factory.mktemp("neighbor")) as toy:
        made = Lab(_committed(toy))
        made.url, made.environment["PREFECT_API_URL"] = lab.url, lab.url
        made.start_worker()
        yield made
        made.kill(made.worker, signal.SIGTERM)
