"""`posttrain doctor` on servers and databases: of `posttrain up`, and of the environment."""

import email.utils
import importlib.util
import os
import sqlite3
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from posttrain.operations.maintenance.checks import clock, ledger, servers
from posttrain.operations.maintenance.checks.finding import CheckScope
from posttrain.operations.services.plan import FOLDER, ServicePlan
from posttrain.operations.services.process import remember
from posttrain.provenance.ledger import Run, open_ledger

# The ledger's tests have the private PostgreSQL server; conftest files cannot import each other.
_spec = importlib.util.spec_from_file_location(
    "databases", Path(__file__).parents[2] / "provenance/ledger/conftest.py"
)
_databases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_databases)
postgres, postgres_url = _databases.postgres, _databases.postgres_url
NAMED = ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "MLFLOW_BACKEND_STORE_URI", "POSTTRAIN_LEDGER",
         "POSTTRAIN_SCHEDULES", "POSTTRAIN_PREFECT_DATABASE")  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    for name in NAMED:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".posttrain").mkdir()
    return CheckScope(tmp_path)


@pytest.fixture
def server():
    """A server that answers `code` to everything, by a clock that is `ahead` seconds ahead."""
    running = []

    def start(code=200, ahead=0.0):
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(code if self.path.endswith("/health") else 404)
                self.end_headers()

            def date_time_string(self, timestamp=None):
                return email.utils.formatdate(time.time() + ahead, usegmt=True)

            def log_message(self, *_):
                pass

        running.append(HTTPServer(("127.0.0.1", 0), Answer))
        threading.Thread(target=running[-1].serve_forever, daemon=True).start()
        return running[-1].server_port

    yield start
    for each in running:
        each.shutdown()
        each.server_close()


def seen(place):
    return [(each.check, each.state, each.says, each.remedy) for each in servers.servers(place)]


def up(place, prefect, mlflow, *, worker=True):
    """Let it look as if `posttrain up` ran in this process."""
    folder = place.project / FOLDER
    ServicePlan(place.project, prefect_port=prefect, mlflow_port=mlflow).save()
    remember(folder, "supervisor", os.getpid())
    for name in ("prefect", "mlflow", *["worker"] * worker):
        remember(folder, name, os.getpid())
    return folder


def test_nothing_is_named_and_nothing_is_asked(place):
    assert seen(place) == []


def test_named_servers_that_answer_fail_or_are_not_there(place, server, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server()}/api")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@127.0.0.1:{server(503)}")
    prefect, mlflow = seen(place)
    assert prefect[:2] == ("prefect", "ok")
    assert mlflow[:2] == ("mlflow", "broken")
    assert mlflow[2].endswith("answers with error 503")
    assert "secret" not in mlflow[2]
    assert "unset MLFLOW_TRACKING_URI" in mlflow[3]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert "does not answer: [Errno 111] Connection refused" in seen(place)[1][2]


def test_a_server_with_another_clock(place, server, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server(ahead=-40)}/api")
    _, skewed = seen(place)
    assert skewed[:2] == ("clock", "warning")
    assert "behind this machine's" in skewed[2]
    monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server(ahead=1)}/api")
    assert [each[1] for each in seen(place)] == ["ok"]


def test_the_services_of_up(place, server):
    folder = up(place, server(), server())
    assert seen(place)[2][:3] == (
        "worker",
        "broken",
        f"hung? it has given no sign of life yet (process {os.getpid()})",
    )
    (folder / "worker.beat").touch()
    assert [each[:2] for each in seen(place)] == [
        ("prefect", "ok"),
        ("mlflow", "ok"),
        ("worker", "ok"),
    ]
    os.utime(folder / "worker.beat", (time.time() - 600,) * 2)
    assert "it has given no sign of life for 10 min 0 s" in seen(place)[2][2]
    up(place, 1, server())
    check, state, said, remedy = seen(place)[0]
    assert (check, state) == ("prefect", "broken")
    assert said.startswith("hung? http://127.0.0.1:1/api does not answer")
    assert said.endswith(f"(process {os.getpid()})")
    assert f"{folder}/prefect.log" in remedy
    assert "posttrain down && posttrain up" in remedy
    (folder / "prefect.pid").unlink()
    assert seen(place)[0][2] == f"it is gone, and process {os.getpid()} watches"


def test_the_services_of_another_machine_are_named(place):
    folder = up(place, 1, 1)
    (folder / "supervisor.pid").write_text(f"oldhost {os.getpid()} otherboot:1")
    ((check, state, said, remedy),) = seen(place)
    assert (check, state) == ("services", "warning")
    assert said.endswith(f"supervisor.pid is of another machine, oldhost (process {os.getpid()})")
    assert "posttrain down there" in remedy


def test_services_that_ended_without_down(place):
    folder = up(place, 1, 1)
    host, _, birth = (folder / "supervisor.pid").read_text().split(" ")
    (folder / "supervisor.pid").write_text(f"{host} {2**22 + 1} {birth}")
    ((check, state, said, remedy),) = seen(place)
    assert (check, state) == ("services", "warning")
    assert "a kill, or a reboot" in said
    assert "posttrain up --detach" in remedy


def test_a_damaged_database_beside_the_runs(place):
    with sqlite3.connect(place.state / "mlflow.db") as database:
        database.execute("CREATE TABLE runs (id TEXT)")
    (place.state / "schedules.db").write_bytes(b"not sqlite at all" * 100)
    mlflow, schedules = servers.databases(place)
    assert (mlflow.state, schedules.state) == ("ok", "broken")
    assert "file is not a database" in schedules.says
    assert "restore a copy" in schedules.remedy


def test_a_ledger_on_postgresql(place, postgres_url, monkeypatch):
    monkeypatch.setenv("POSTTRAIN_LEDGER", postgres_url)
    (broken,) = ledger.ledger(place)
    assert (broken.state, broken.says) == ("broken", "in postgresql holds no ledger")
    with open_ledger(postgres_url) as known:
        known.begin_run(Run("r", "mine", time.time() + 900))
    (found,) = ledger.ledger(place)
    assert found.says == "1 runs in postgresql, schema 0005"
    ((check, state, said, _),) = seen(place)
    assert (check, state) == ("postgresql", "ok")
    assert "POSTTRAIN_LEDGER answers, version" in said
    (back,) = clock.clock(place)
    assert (back.state, "it went back" in back.says) == ("broken", True)
    monkeypatch.setenv("POSTTRAIN_LEDGER", "postgresql://me:secret@127.0.0.1:1/x")
    ((_, state, said, _),) = seen(place)
    assert state == "broken"
    (found,) = ledger.ledger(place)
    assert found.state == "broken"
    assert "secret" not in said + found.says
