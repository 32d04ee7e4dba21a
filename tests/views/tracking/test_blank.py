"""A blank database is kept for the next project, and what is wrong with it costs only time."""

import contextlib
import sqlite3

import pytest

from posttrain.views.tracking.blank import keep_blank, lay_blank


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/posttrain"


@pytest.fixture
def made(tmp_path):
    path = tmp_path / "made.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "PRAGMA journal_mode=WAL; CREATE TABLE t(x); CREATE TABLE own(x);"
            "INSERT INTO t VALUES(1); INSERT INTO own VALUES('/here')"
        )
    return path


def rows(path, table):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT x FROM {table}").fetchall()


def test_the_next_project_gets_what_was_kept_without_what_is_of_the_first(cache, made, tmp_path):
    laid = tmp_path / "laid.db"
    assert not lay_blank("mlflow", laid)
    keep_blank("mlflow", made, emptied=["own"])
    assert lay_blank("mlflow", laid)
    assert (rows(laid, "t"), rows(laid, "own")) == ([(1,)], [])
    assert rows(made, "own") == [("/here",)]
    assert [each.name for each in cache.iterdir()] == [next(cache.glob("mlflow-*.db")).name]


def test_a_database_that_is_there_stays(cache, made):
    keep_blank("mlflow", made, emptied=["own"])
    assert not lay_blank("mlflow", made)
    assert rows(made, "own") == [("/here",)]


@pytest.mark.parametrize("content", [b"", b"no database at all", None])
def test_a_damaged_one_is_thrown_away(cache, made, tmp_path, content):
    keep_blank("mlflow", made)
    kept = next(cache.iterdir())
    whole = kept.read_bytes()
    kept.write_bytes(content if content is not None else whole[:5000] + b"\7" * 3000)
    assert not lay_blank("mlflow", tmp_path / "laid.db")
    assert not kept.exists()
    assert [each.name for each in tmp_path.glob("laid*")] == []


def test_where_nothing_can_be_kept_nothing_is_said(tmp_path, monkeypatch, made):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep_blank("mlflow", made)
    assert not lay_blank("mlflow", tmp_path / "laid.db")
