"""Journals in every database that is here, and projects that have a commit."""

import importlib.util
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from posttrain.schedule.journal import open_journal
from posttrain.schedule.schedule import Schedule

# The ledger's tests have the private PostgreSQL server; conftest files cannot import each other.
_spec = importlib.util.spec_from_file_location(
    "databases", Path(__file__).parents[1] / "pipeline/ledger/conftest.py"
)
_databases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_databases)
postgres, postgres_url, url = _databases.postgres, _databases.postgres_url, _databases.url


def _git(root, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def project(toy):
    """The toy project with everything committed; `commit` does it again."""
    toy.write(".gitignore", ".posttrain/\n__pycache__/\ndata/\n.dvc/config.local\nprefect.yaml\n")

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
def declare():
    """Make schedules of the toy recipe."""

    def make(name="s", **fields):
        return Schedule(name, ".", **{"cron": "* * * * *", "since": 0.0, **fields})

    return make


@pytest.fixture
def quiet(monkeypatch):
    """No Prefect, MLflow or journal of the user's."""
    theirs = ("PREFECT_", "MLFLOW_", "POSTTRAIN_")
    for name in [name for name in os.environ if name.startswith(theirs)]:
        monkeypatch.delenv(name)
