"""A PostgreSQL server that cuts its connections, or takes none for a while, loses no record."""

import threading
import time

import psycopg
import pytest

from posttrain.provenance.ledger import open_ledger
from posttrain.stage.errors import UserError


def cut(prefix, url):
    with psycopg.connect(prefix + "postgres", autocommit=True) as connection:
        name = url.rpartition("/")[2]
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        connection.execute(query, (name,))


def allow(prefix, url, allowed):
    with psycopg.connect(prefix + "postgres", autocommit=True) as connection:
        name = url.rpartition("/")[2]
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}")


def test_reading_and_writing_go_on_after_it(postgres, postgres_url, make):
    with open_ledger(postgres_url) as ledger:
        ledger.record(make.stage_run(1))
        cut(postgres, postgres_url)
        assert [run.id for run in ledger.every_stage_run()] == ["s1"]
        cut(postgres, postgres_url)
        ledger.record(make.stage_run(2))
        assert [run.id for run in ledger.every_stage_run()] == ["s1", "s2"]


def test_a_database_that_takes_nobody_for_a_while_is_waited_for(postgres, postgres_url, make):
    with open_ledger(postgres_url) as ledger:
        allow(postgres, postgres_url, "false")
        cut(postgres, postgres_url)
        begun = time.monotonic()
        timer = threading.Timer(1.0, allow, (postgres, postgres_url, "true"))
        timer.start()
        ledger.record(make.stage_run(1))
        assert 0.9 < time.monotonic() - begun < 30
        timer.join()
        assert [run.id for run in ledger.every_stage_run()] == ["s1"]


def test_one_that_never_answered_is_said_at_once(postgres, postgres_url):
    begun = time.monotonic()
    with pytest.raises(UserError, match="cannot open the ledger"):
        open_ledger(postgres_url + "_gone")
    assert time.monotonic() - begun < 5
