"""Ledger, journal, MLflow and Prefect in PostgreSQL, through an outage and a restore."""

import os
import signal
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from posttrain.provenance.ledger import open_ledger


@pytest.fixture
def up(services, databases, monkeypatch):
    """`posttrain up` with all four databases on the private server."""
    monkeypatch.setenv("POSTTRAIN_LEDGER", databases["ledger"])
    monkeypatch.setenv("POSTTRAIN_SCHEDULES", databases["schedules"])
    return services("--database", databases["prefect"], "--mlflow-database", databases["mlflow"])


def tables(url):
    with psycopg.connect(url) as connection:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        return {name for (name,) in connection.execute(query)}


def outage(postgres, databases, seconds):
    """Every connection is cut, and nobody gets a new one for a while."""
    names = [url.rpartition("/")[2] for url in databases.values()]
    with psycopg.connect(postgres + "postgres", autocommit=True) as connection:
        for allowed in ("false", "true"):
            for name in names:
                connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}")
            if allowed == "false":
                cut = (
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ANY(%s)"
                )
                connection.execute(cut, (names,))
                time.sleep(seconds)


def long_run(up, story, postgres, databases):
    """The databases go away under a stage, and the worker is killed meanwhile: it ends well."""
    up.schedule("add", ".", "--name", "long", "--cron", "0 2 1 1 *", "--retry-seconds", "0.5",
                "--set", "second.mood=wait", "--set", "second.amount=100")  # fmt: skip
    up.schedule("run-now", "long")
    scratch = up.root / ".posttrain/worktrees/long/tree/.posttrain/scratch"
    (waiting,) = up.wait(lambda _: list(scratch.glob("root-second-*/waiting")))
    os.kill(up.pid("worker"), signal.SIGKILL)
    outage(postgres, databases, 6)
    (waiting.parent / "go").touch()
    (tick,) = up.wait(story.over("succeeded", schedule="long"))
    with up.journal() as journal:
        assert (tick.reason, tick.attempt) == ("2 of 3 stages ran", 1), journal.story(tick)
    assert tick.reason == "2 of 3 stages ran"


def restored(up, story, postgres, databases, place):
    """`pg_dump` of each database and `pg_restore` into another, as docs/operations.md has it."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_dump"))
    if not programs:
        return None
    told = up.schedule("history").stdout
    up.down()
    fresh = {}
    with psycopg.connect(postgres + "postgres", autocommit=True) as connection:
        for name, url in databases.items():
            fresh[name] = f"{url}_again"
            connection.execute(f"CREATE DATABASE {urlsplit(fresh[name]).path[1:]}")
            subprocess.run([programs[-1], "-Fc", "-d", url, "-f", place / name], check=True)
            restore = programs[-1].with_name("pg_restore")
            subprocess.run([restore, "-d", fresh[name], place / name], check=True)
    return told, fresh


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_story_of_a_user(up, services, story, postgres, databases, tmp_path, monkeypatch):
    (up.root / "data.txt").write_text("one")
    up.project.commit()
    story.first_run(up)
    story.moved_and_not(up)
    long_run(up, story, postgres, databases)
    # Nothing of it is in SQLite.
    assert list(up.root.glob(".posttrain/*.db")) == []
    assert not (up.root / ".posttrain/prefect/prefect.db").exists()
    assert {"stage_runs", "runs"} <= tables(databases["ledger"])
    assert {"ticks", "schedules", "notes"} <= tables(databases["schedules"])
    assert {"experiments", "metrics"} <= tables(databases["mlflow"])
    assert {"flow_run", "deployment"} <= tables(databases["prefect"])
    kept = restored(up, story, postgres, databases, tmp_path)
    if kept is None:
        return
    told, fresh = kept
    monkeypatch.setenv("POSTTRAIN_LEDGER", fresh["ledger"])
    monkeypatch.setenv("POSTTRAIN_SCHEDULES", fresh["schedules"])
    again = services("--database", fresh["prefect"], "--mlflow-database", fresh["mlflow"])
    assert again.schedule("history").stdout == told
    with open_ledger(databases["ledger"]) as before, open_ledger(fresh["ledger"]) as after:
        assert list(after.every_stage_run()) == list(before.every_stage_run())
    again.up()
    again.schedule("run-now", "nightly")
    tick = again.wait(story.over("succeeded", count=3))[0]
    assert tick.reason == "everything was up to date: 3 stages"
    (experiment,) = [
        each
        for each in again.mlflow("/experiments/search", {"max_results": 10})["experiments"]
        if each["name"] == "chain"
    ]
    assert {"key": "mlflow.experimentKind", "value": "custom_model_development"} in experiment[
        "tags"
    ]
