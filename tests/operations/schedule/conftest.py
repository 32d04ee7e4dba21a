"""Journals in every database that is here, and projects that have a commit."""

import importlib.util
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

from posttrain.operations.schedule.journal import journal_location, open_journal
from posttrain.operations.schedule.schedule import CronSchedule
from posttrain.operations.services.plan import addresses
from posttrain.operations.services.process import alive

# The ledger's tests have the private PostgreSQL server; conftest files cannot import each other.
_spec = importlib.util.spec_from_file_location(
    "databases", Path(__file__).parents[2] / "provenance/ledger/conftest.py"
)
_databases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_databases)
postgres, postgres_url, url = _databases.postgres, _databases.postgres_url, _databases.url
_spec = importlib.util.spec_from_file_location("stories", Path(__file__).parent / "stories.py")
_stories = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_stories)


def _git(root, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def project(toy):
    """The toy project with everything committed; `commit` does it again."""
    ignored = (
        ".posttrain/",
        "__pycache__/",
        "data/",
        ".dvc/config.local",
        ".dvc/cache/",
        "prefect.yaml",
    )
    toy.write(".gitignore", "".join(f"{each}\n" for each in ignored))

    def commit(message="change"):
        _git(toy.root, "add", "-A")
        _git(toy.root, "commit", "-q", "-m", message)

    commit()
    return SimpleNamespace(toy=toy, root=toy.root, commit=commit, cli=toy.cli)


@pytest.fixture
def journal(url):
    """An empty journal, in SQLite and in PostgreSQL."""
    with open_journal(url if "://" in url else f"sqlite:///{url}") as opened:
        yield opened


@pytest.fixture
def story():
    """What a user does, told once for every database."""
    return _stories


@pytest.fixture
def databases(postgres):
    """Empty PostgreSQL databases by name."""
    names = ("ledger", "schedules", "mlflow", "prefect")
    return {name: _databases._new_database(postgres) for name in names}


@pytest.fixture
def declare():
    """Make schedules of the toy recipe."""

    def make(name="s", **fields):
        return CronSchedule(name, ".", **{"cron": "* * * * *", "since": 0.0, **fields})

    return make


@pytest.fixture
def quiet(monkeypatch):
    """No Prefect, MLflow or journal of the user's."""
    theirs = ("PREFECT_", "MLFLOW_", "POSTTRAIN_")
    for name in [name for name in os.environ if name.startswith(theirs)]:
        monkeypatch.delenv(name)


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Services:
    """`posttrain up` in a project, as a user has it."""

    def __init__(self, project, *options):
        self.project = project
        self.root = project.root
        self.ports = ["--prefect-port", str(_free_port()), "--mlflow-port", str(_free_port())]
        self.options = [*self.ports, "--limit", "4", *options]
        self.folder = self.root / ".posttrain/services"

    def up(self):
        done = self.project.cli("up", "--detach", *self.options)
        assert done.returncode == 0, done.stderr + (self.folder / "supervisor.log").read_text()
        return addresses(self.root)

    def down(self):
        return self.project.cli("down").stdout

    def schedule(self, *arguments, fine=True):
        done = self.project.cli("schedule", *arguments)
        assert not fine or done.returncode == 0, done.stderr
        return done

    def pid(self, name):
        """Process id of a service now."""
        return alive(self.folder, name)

    def journal(self):
        return open_journal(journal_location(self.root))

    def wait(self, condition, seconds=120):
        """Until `condition(journal)` holds; its value."""
        deadline = time.monotonic() + seconds
        with self.journal() as journal:
            while time.monotonic() < deadline:
                if value := condition(journal):
                    return value
                time.sleep(0.2)
            stories = [(tick, journal.story(tick)) for tick in journal.live()]
        raise AssertionError((stories, (self.folder / "worker.log").read_text()[-3000:]))

    def prefect(self, path, body=None):
        """An answer of Prefect's API."""
        return _ask(addresses(self.root)["PREFECT_API_URL"] + path, body)

    def mlflow(self, path, body=None):
        """An answer of MLflow's API."""
        return _ask(addresses(self.root)["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow" + path, body)


def _ask(url, body):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    # While its SQLite is busy, Prefect asks to be asked again.
    for pause in (0.5, 1.0, 2.0, 4.0):
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            time.sleep(pause)
    raise AssertionError(f"{url} is not available")


@pytest.fixture
def services(project, quiet):
    """Makes services that are down at the end, with no process left of them."""
    made = []

    def make(*options):
        made.append(Services(project, *options))
        return made[-1]

    yield make
    for each in made:
        each.down()
    # What preloads for the stages of a run that was killed ends once it has loaded.
    deadline = time.monotonic() + 30
    while processes_in(project.root) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert processes_in(project.root) == []


def processes_in(root):
    """Command lines of all processes that work for the project."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            where = str((folder / "cwd").readlink())
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if where.startswith(str(root)) and command:
            found.append(command)
    return found
