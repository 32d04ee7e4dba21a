import contextlib
import sqlite3

from sqlalchemy import create_engine

from posttrain.views.tracking.sqlite import commit_sooner, take_place


def rows(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT x FROM t").fetchall()


def test_databases_opened_from_then_on_keep_a_log(tmp_path):
    commit_sooner()
    commit_sooner()
    engine = create_engine(f"sqlite:///{tmp_path / 'a.db'}")
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1
    engine.dispose()


def test_the_log_of_the_database_before_is_not_folded_into_the_one_that_takes_its_place(tmp_path):
    old, fresh = tmp_path / "old.db", tmp_path / "fresh.db"
    with contextlib.closing(sqlite3.connect(fresh)) as connection:
        connection.executescript(
            "PRAGMA journal_mode=WAL; CREATE TABLE t(x); INSERT INTO t VALUES(2)"
        )
    with contextlib.closing(sqlite3.connect(old)) as connection:
        connection.executescript(
            "PRAGMA journal_mode=WAL; CREATE TABLE t(x); INSERT INTO t VALUES(1)"
        )
        assert (tmp_path / "old.db-wal").stat().st_size
        take_place(fresh, old)
    assert rows(old) == [(2,)]
    assert rows(fresh) == [(2,)]
    assert not (tmp_path / "old.db-wal").exists()
