"""Prefect's server is begun before Prefect is imported, unless somebody says a thing of it."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.pipeline.execution import prefect
from posttrain.pipeline.execution.failures import ServerFailed
from posttrain.pipeline.execution.prefect_server import await_answer
from posttrain.views.tracking import blank


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Homes of the servers that were begun; none is."""
    homes = []
    monkeypatch.setattr(prefect, "TemporaryServer", lambda home, seconds: homes.append(home))
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ) | {"HOME": str(tmp_path)})
    monkeypatch.delitem(sys.modules, "prefect", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state").mkdir()
    prefect.configure(tmp_path / "state")
    return homes


def test_where_nothing_is_said_it_is_begun(begun, tmp_path):
    Path("pyproject.toml").write_text('[project]\ndependencies = ["prefect"]\n')
    prefect._begin_server()
    assert begun == [tmp_path / "state/prefect"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("prefect.toml", "[api]\n"),
        ("pyproject.toml", "[tool.prefect.api]\nurl = 'http://here/api'\n"),
        (".env", "PREFECT_API_URL=http://here/api\n"),
        ("state/prefect/profiles.toml", "active = 'mine'\n"),
    ],
)
def test_a_file_of_settings_is_read_by_prefect_first(begun, file, text):
    Path(file).parent.mkdir(exist_ok=True)
    Path(file).write_text(text)
    assert prefect._begin_server() is None
    assert begun == []


@pytest.mark.parametrize("name", ["PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_SERVER_PORT"])
def test_so_is_a_variable(begun, name):
    os.environ[name] = "here"
    assert prefect._begin_server() is None
    assert begun == []


def test_who_has_prefect_already_has_its_settings(begun, monkeypatch):
    monkeypatch.setitem(sys.modules, "prefect", object())
    assert prefect._begin_server() is None
    assert begun == []


SERVES = """
import os, signal, sys, time
from posttrain.pipeline.execution.prefect_server import falling_silent
signal.signal(signal.SIGTERM, falling_silent(lambda number, _: told.append(number)))
told = []
print("before", file=sys.stderr, flush=True)
while not told:
    time.sleep(0.01)
print("broken off", file=sys.stderr, flush=True)
sys.exit(told[0])
"""


def test_what_is_broken_off_at_its_end_is_not_told():
    process = subprocess.Popen([sys.executable, "-c", SERVES], stderr=subprocess.PIPE, text=True)
    assert process.stderr.readline() == "before\n"
    process.terminate()
    assert (process.communicate(timeout=20)[1], process.returncode) == ("", signal.SIGTERM)


def test_who_does_not_answer_in_time_is_no_bad_input():
    silent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with pytest.raises(ServerFailed, match="did not answer in time; run the same command"):
            await_answer("http://127.0.0.1:9/health", silent, 0.0)
    finally:
        silent.communicate(b"\n")
    with pytest.raises(ServerFailed, match="ended; run the same command"):
        await_answer("http://127.0.0.1:9/health", silent, 60.0)


def test_a_database_is_like_the_blank_one_where_both_were_migrated_alike(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    database, kept = tmp_path / "mine.db", blank._kept("prefect")
    kept.parent.mkdir()

    def migrated(place, version):
        with sqlite3.connect(place) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS alembic_version (version_num)")
            connection.execute("DELETE FROM alembic_version")
            connection.execute("INSERT INTO alembic_version VALUES (?)", [version])

    migrated(database, "b2")
    assert not blank.is_like_blank("prefect", database)
    migrated(kept, "a1")
    assert not blank.is_like_blank("prefect", database)
    migrated(kept, "b2")
    assert blank.is_like_blank("prefect", database)
    database.write_text("no database")
    assert not blank.is_like_blank("prefect", database)
